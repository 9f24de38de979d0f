"""The Python and the JavaScript reader of bundles give one verdict on any manifest and plan, by the same rule.

Covers: runtime/bundle/structure, runtime/bundle/manifest_relations, runtime/bundle/program_relations,
runtime/bundle/plan_relations, runtime/bundle/shape_relations, runtime/plan/size_bounds, runtime/web/shaderloom.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shaderloom.runtime.bundle.format import plan_file
from shaderloom.runtime.bundle.program_relations import steps_of
from shaderloom.runtime.bundle.structure import LARGEST, fields_of, schema
from shaderloom.runtime.plan import facts, notes, plan
from shaderloom.runtime.plan.dimension import evaluate
from shaderloom.runtime.plan.dtypes import BY_NAME
from shaderloom.runtime.plan.model_metadata import ModelMetadata
from shaderloom.runtime.plan.size_bounds import bounds_of

from ...support.bundles import bundles_of_all_kinds
from ...support.effort import SOAK
from ...support.hostile import Seed, structural
from ...support.hostile_comparisons import COMPARISONS
from ...support.hostile_mutations import mutated
from ...support.hostile_relations import RELATIONS, STATES, with_alias_chain
from ...support.hostile_steps import GROWTH, LOOPS, PROGRAMS, STAGES
from ...support.verdicts import JavaScript, Verdict, python_verdict
from ...support.work import calls_of

#: Data of tests
KEPT = Path(__file__).resolve().parents[2] / "data"

needs_node = pytest.mark.skipif(not JavaScript.is_available(), reason="Node.js is not installed")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory) -> list[Seed]:
    paths = bundles_of_all_kinds(tmp_path_factory.mktemp("seeds"))
    further = [Seed.of(paths["further"], model) for model in ("cache", "steps")]
    return [*map(Seed.of, paths.values()), *further, *(kept_seed(name) for name in ("cache", "dynamic"))]


def kept_seed(name: str) -> Seed:
    content = json.loads((KEPT / "bundles" / f"{name}.json").read_bytes())
    return Seed(content["manifest"], content["plan"])


@pytest.fixture(scope="module")
def javascript() -> Iterator[JavaScript]:
    with JavaScript() as running:
        yield running


def _counted(manifest: bytes, plan: bytes, key: str) -> tuple[Verdict, int]:
    """The verdict on a bundle, and how many calls of functions it took."""
    verdicts: list[Verdict] = []
    calls = calls_of(lambda: verdicts.append(python_verdict(manifest, plan, key)))
    return verdicts[0], calls


def test_bundles_are_accepted(seeds):
    for seed in seeds:
        assert python_verdict(*seed.files(), seed.key, seed.own) == Verdict(None)


@needs_node
def test_bundles_are_accepted_by_javascript(seeds, javascript):
    for seed in seeds:
        assert javascript.verdict(*seed.files(), seed.key, seed.own) == Verdict(None)


@pytest.mark.parametrize("name", RELATIONS)
def test_every_relation_has_its_rule(seeds, name):
    file, change, rule = RELATIONS[name]
    files = seeds[0].changed(file, change).files()
    verdict, calls = _counted(*files, seeds[0].key)
    assert (verdict.rule, verdict.path[0]) == (rule, file)
    assert calls < 4 * sum(map(len, files))


def _moved(port: str, field: str, more: int):
    """Change the last of the ranges that calls bind of a port."""

    def change(plan: Any) -> None:
        calls = [call for command in plan["commands"] for call in command["calls"]]
        spans = [span for call in calls for span in call["ranges"] if span["buffer"] == port]
        last = max(spans, key=lambda span: span["offset"])
        assert last["offset"]
        last[field] += more

    return change


@needs_node
@pytest.mark.parametrize("port", ["input:x", "output:y"])
@pytest.mark.parametrize(
    ("field", "more", "rule"), [("offset", 256, "inside"), ("size", 16, "inside"), ("size", -2, "words")]
)
def test_windows_lie_inside_of_their_port(seeds, javascript, port, field, more, rule):
    seed = next(seed for seed in seeds if seed.plan["outputs"][0]["shape"] == [301, 80])
    files = seed.changed("plan", _moved(port, field, more)).files()
    assert python_verdict(*files, seed.key).rule == javascript.verdict(*files, seed.key).rule == rule


@pytest.mark.slow
def test_chains_of_aliases_take_linear_time(seeds):
    key = seeds[0].key
    short, long = with_alias_chain(seeds[0], 1000), with_alias_chain(seeds[0], 10_000)
    (first, few), (second, many) = _counted(*short.files(), key), _counted(*long.files(), key)
    assert first == second == Verdict(None)
    assert many < 11 * few
    long.plan["aliases"][-1]["source"] = "output:5000"
    verdict, calls = _counted(*long.files(), key)
    assert verdict == Verdict("circle", ("plan", "aliases", 2))
    assert calls < 2 * many


@needs_node
def test_every_relation_has_its_rule_in_javascript(seeds, javascript):
    for name, (file, change, _) in RELATIONS.items():
        files = seeds[0].changed(file, change).files()
        assert javascript.verdict(*files, seeds[0].key) == python_verdict(*files, seeds[0].key), name


def test_states_are_refused(request):
    """Those of a kept bundle with declared dimensions, by the rules and in the places of both readers."""
    seed = kept_seed("cache")
    verdicts = {}
    for name, (change, rule) in STATES.items():
        verdicts[name] = python_verdict(*seed.changed("plan", change).files(), seed.key)
        assert verdicts[name].rule == rule, name
    if JavaScript.is_available():
        javascript = request.getfixturevalue("javascript")
        for name, (change, _) in STATES.items():
            assert javascript.verdict(*seed.changed("plan", change).files(), seed.key) == verdicts[name], name


@pytest.fixture(scope="module")
def program(seeds) -> Seed:
    return next(seed for seed in seeds if seed.manifest.get("programs"))


@pytest.fixture(scope="module")
def loops(seeds) -> Seed:
    return [seed for seed in seeds if seed.manifest.get("programs")][1]


@pytest.fixture(scope="module")
def growing(seeds) -> Seed:
    return [seed for seed in seeds if seed.manifest.get("programs")][2]


@pytest.fixture(scope="module")
def comparing(seeds) -> Seed:
    return next(filter(_has_comparison, seeds))


def _has_comparison(seed: Seed) -> bool:
    programs = seed.manifest.get("programs", ())
    return any(step["kind"] == "compare" for program in programs for step in steps_of(program["steps"]))


def _windows_of(seed: Seed) -> list[Any]:
    """Return where the ranges begin that calls bind of the first output, each once."""
    calls = [call for command in seed.plan["commands"] for call in command["calls"]]
    name = f"output:{seed.plan['outputs'][0]['name']}"
    offsets = [span["offset"] for call in calls for span in call["ranges"] if span["buffer"] == name]
    return [offset for position, offset in enumerate(offsets) if offset not in offsets[:position]]


@pytest.mark.parametrize(
    ("kind", "changes", "has_plan"),
    [
        ("program", PROGRAMS, False),
        ("program", STAGES, True),
        ("loops", LOOPS, False),
        ("growing", GROWTH, False),
        ("comparing", COMPARISONS, False),
    ],
    ids=["programs", "stages", "loops", "growth", "comparisons"],
)
def test_programs_are_refused(request, kind, changes, has_plan):
    """By the rules and in the places of both readers; what the manifest says of stages when their plans are read."""
    program = request.getfixturevalue(kind)
    javascript = request.getfixturevalue("javascript") if JavaScript.is_available() else None
    for name, (change, rule) in changes.items():
        manifest, plan = program.changed("manifest", change).files()
        verdict = python_verdict(manifest, plan if has_plan else None, program.key)
        assert verdict.rule == rule, name
        if has_plan:
            assert python_verdict(manifest, None, "") == Verdict(None), name
        if javascript is not None:
            assert javascript.verdict(manifest, plan if has_plan else None, program.key) == verdict, name


def test_fields_of_other_kinds_are_ignored(request, seeds):
    """A step may have, of any type, the fields that those of other kinds have."""

    def enlarge(manifest):
        for program in manifest["programs"]:
            for step in list(steps_of(program["steps"])):
                known = {*fields_of_steps[step["kind"]], "kind", "software"}
                step |= {name: 5 for fields in fields_of_steps.values() for name in fields if name not in known}

    records = schema()["types"]["step"].items()
    fields_of_steps = {kind: re.findall(r"(\w+)\??: ", ", ".join(record)) for kind, record in records}
    javascript = request.getfixturevalue("javascript") if JavaScript.is_available() else None
    for seed in (seed for seed in seeds if seed.manifest.get("programs")):
        manifest, plan = seed.changed("manifest", enlarge).files()
        assert manifest != seed.files()[0]
        assert python_verdict(manifest, plan, seed.key, seed.own) == Verdict(None)
        if javascript is not None:
            assert javascript.verdict(manifest, plan, seed.key, seed.own) == Verdict(None)


@pytest.mark.parametrize(
    "change",
    [
        lambda files, name: files[name].update(size=files[name]["size"] + 1),
        lambda files, name: files[name].update(sha256=["0" * 64]),
        lambda files, name: files.update(other=files[name]),
        lambda files, name: files.update({"shaders/constructor": files[name]}),
    ],
    ids=["size", "hash", "not there", "constructor"],
)
def test_files_of_further_models_are_those_of_the_bundle(request, seeds, change):
    seed = next(seed for seed in seeds if seed.model)
    name = plan_file(seed.key)
    content, plan = seed.changed("manifest", lambda root: change(root["files"], name)).files()
    verdict = python_verdict(content, plan, seed.key, seed.own)
    assert (verdict.rule, verdict.path[1]) == ("further file", "files")
    assert python_verdict(content, plan, seed.key).rule is None
    if JavaScript.is_available():
        assert request.getfixturevalue("javascript").verdict(content, plan, seed.key, seed.own) == verdict


def test_values_of_one_side_are_not_those_of_the_other(program):
    """A name may stand for other values on the two sides of a branch, and for none behind one side alone."""

    def swap(manifest):
        branch = manifest["programs"][0]["steps"][-1]
        branch["false"] = branch["false"][:-1]

    assert python_verdict(program.changed("manifest", swap).files()[0], None, "").rule == "result"


@pytest.mark.slow
@needs_node
def test_every_wrong_value_of_every_field(seeds, program, loops, comparing, javascript):
    """Some 8,000: a value of another type, a number beyond its range, a name that is none, a missing field."""
    for seed in (*seeds[:2], kept_seed("cache"), program, loops, comparing):
        rules: Counter[str | None] = Counter()
        for name, file, change in structural(seed):
            files = seed.changed(file, change).files()
            verdict = python_verdict(*files, seed.key)
            assert javascript.verdict(*files, seed.key) == verdict, name
            rules[verdict.rule] += 1
        assert sum(rules.values()) > 2000 and rules[None] < sum(rules.values()) / 4, rules


@pytest.mark.slow
@pytest.mark.fuzz
@needs_node
def test_random_mutations(seeds, javascript):
    """For 20 seconds, in a soak for 300; a failure names the number that draws it again."""
    first = 0 if not SOAK else random.SystemRandom().randrange(1 << 40)
    end, number, rules = time.monotonic() + (300 if SOAK else 20), first, Counter()
    while time.monotonic() < end:
        generator = random.Random(number)
        seed = seeds[generator.randrange(len(seeds))]
        files = mutated(seed, generator)
        verdict = python_verdict(*files, seed.key, seed.own)
        other = javascript.verdict(*files, seed.key, seed.own)
        if "json" not in (verdict.rule, other.rule) or (verdict.rule is None) != (other.rule is None):
            assert other == verdict, number
        rules[verdict.rule] += 1
        number += 1
    assert number - first > 100 and len(rules) > 5, rules


@pytest.mark.slow
@pytest.mark.fuzz
@needs_node
def test_twenty_thousand_mutations_are_refused_or_accepted(seeds):
    """Bundles of all kinds, a quarter of them programs, one further models, and one with comparisons or windows: no
    error of another kind.

    None takes Node five seconds of processor time, of which a manifest takes some milliseconds: a busy machine changes
    that little.
    """
    programs = [seed for seed in seeds if seed.manifest.get("programs")]
    further = [seed for seed in seeds if seed.model]
    latest = [seed for seed in seeds if _has_comparison(seed) or len(_windows_of(seed)) > 1]
    assert len(latest) == 3
    rules: Counter[str | None] = Counter()
    with JavaScript() as running:
        for number in range(20_000):
            generator = random.Random(number)
            seed = generator.choice((seeds, programs, further, latest)[number % 4])
            rules[running.verdict(*mutated(seed, generator, aimed=True), seed.key, seed.own).rule] += 1
            assert not rules["foreign"], number
        assert running.longest_milliseconds < 5000
    assert rules[None] > 1000 and rules["further file"] > 15 and len(rules) > 30, rules


#: Texts on which parsers of JSON differ
TEXTS = {
    b"\xef\xbb\xbf": "a mark of the order of bytes", b"NaN": "", b"[Infinity]": "", b"\xff": "", b"": "", b"01": "",
    b'"\x01"': "a raw control character", b"[" * 100_000: "deep", b'{"a":' * 100_000: "deep", b"[1,]": "", b"{": "",
    b"'x'": "", b"\x00": "", "{}".encode("utf-16"): "another encoding", b"[]": "", b"1": "", b"null": "",
}  # fmt: skip


@needs_node
@pytest.mark.parametrize("text", TEXTS)
def test_texts_that_are_no_manifest(javascript, text):
    verdict = python_verdict(text, None, "")
    assert verdict.rule in ("json", "type")
    assert javascript.verdict(text, None, "") == verdict


@needs_node
@pytest.mark.parametrize(
    ("text", "rule"),
    [("1e2", None), ("3.0", None), ("-0", None), ("9007199254740991", None), ("9007199254740992", "number"),
     ("9007199254740993", "number"), ("1e16", "number"), ("1e999", "number"), ("0.5", "number"), ("-1", "number"),
     ("1" * 5000, "number"), ("9007199254740991.4", None)],
)  # fmt: skip
def test_numbers_are_those_of_javascript(seeds, javascript, text, rule):
    manifest, _ = seeds[0].changed("manifest", lambda root: root.update(nodes="@")).files()
    manifest = manifest.replace(b'"@"', text.encode())
    verdict = python_verdict(manifest, None, "")
    assert verdict.rule == rule
    assert javascript.verdict(manifest, None, "") == verdict


def test_the_table_has_the_types_of_the_package():
    on_device = {name: dtype.itemsize for name, dtype in BY_NAME.items() if dtype.on_device}
    assert schema()["dtypes"] == on_device
    assert {*on_device, *schema()["other dtypes"]} == set(BY_NAME)


RECORDS = {
    "facts": facts.PlanFacts, "tensor facts": facts.TensorFacts, "layout": facts.StoredLayout,
    "call facts": facts.CallFacts, "decision": facts.DecisionFacts, "precision facts": facts.PrecisionFacts,
    "notes": notes.PlanNotes, "call notes": notes.CallNotes, "memory notes": notes.MemoryNotes,
    "fusion refusal": notes.FusionRefusal, "alternative": notes.Alternative, "precision notes": notes.PrecisionNotes,
    "full precision value": notes.FullPrecisionValue, "binding": plan.Binding, "buffer range": plan.Range,
    "call": plan.KernelCall, "symbol": plan.Symbol, "plan port": plan.Port, "alias": plan.OutputAlias,
    "metadata": ModelMetadata,
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_the_table_has_the_fields_of_the_records(name):
    assert [*fields_of(name)] == [field.name for field in dataclasses.fields(RECORDS[name])]


@pytest.mark.parametrize(
    "size",
    [7, "n", ["+", "n", 2, "m"], ["*", -3, "n", "m"], ["//", ["+", "n", -40], 7], ["%", ["*", "n", -5], 3],
     ["min", "n", 20], ["max", ["//", ["+", ["*", "n", 12], 15], 16], "m"], ["%", -7, 3], ["//", -7, 2]],
)  # fmt: skip
def test_bounds_hold_for_all_values(size):
    symbols = {"n": (3, 33), "m": (0, 5)}
    low, high = bounds_of(size, symbols)
    values = [evaluate(size, {"n": n, "m": m}) for n in range(3, 34) for m in range(6)]
    assert low <= min(values) and max(values) <= high


def test_bounds_are_below_what_javascript_counts():
    assert bounds_of(["+", LARGEST, 0], {}) == (LARGEST, LARGEST)
    assert bounds_of(["+", LARGEST, 1], {}) is None
    assert bounds_of(["+", "n", 1, -1], {"n": (0, LARGEST)}) is None
    with pytest.raises(ValueError, match="'q', which is no symbol"):
        bounds_of(["min", 1, "q"], {})


def test_no_weight_shares_bytes_with_another(seeds):
    """A few kilobytes of file stood for any number of weights."""
    manifest = copy.deepcopy(seeds[0].manifest)
    first = sorted(manifest["weights"])[0]
    for number in range(100):
        manifest["weights"][f"{number:064x}"] = copy.deepcopy(manifest["weights"][first])
    seed = Seed(manifest, seeds[0].plan)
    assert python_verdict(seed.files()[0], None, "").rule == "overlap"


def test_a_shader_has_at_most_a_megabyte(seeds):
    key = seeds[0].plan["kernels"][0]["key"]

    def enlarge(manifest):
        manifest["files"][f"shaders/{key}.wgsl"] = {"size": (1 << 20) + 1, "sha256": ["0" * 64]}

    seed = seeds[0].changed("manifest", enlarge)
    assert python_verdict(*seed.files(), seed.key).rule == "shader"
    assert plan_file(seed.key) in seed.manifest["files"]


def test_every_rule_is_specified_and_in_both_readers():
    root = Path(__file__).resolve().parents[3]
    bundle, web = root / "runtime" / "bundle", root / "runtime" / "web" / "shaderloom"
    kinds = ("manifest", "program", "plan")
    python = "".join((bundle / f"{kind}_relations.py").read_text() for kind in (*kinds, "shape"))
    javascript = "".join((web / f"{kind}_relations.js").read_text() for kind in kinds)
    rules = re.findall(r'Refusal\(\s*"([^"]+)"', python)
    assert set(rules) == set(re.findall(r'\brule\(\s*"([^"]+)"', javascript)), "each reader has the other's rules"
    page = (root / "docs" / "guide" / "bundles.md").read_text().partition("\n## Checks\n")[2]
    specified = {name for cell in re.findall(r"^\| ([a-z ,]+) \|", page, re.MULTILINE) for name in cell.split(", ")}
    assert set(rules) <= specified


@pytest.mark.parametrize("path", sorted((KEPT / "bundles").glob("*.json")), ids=lambda path: path.stem)
def test_kept_seeds(path):
    """Bundles that fuzzing begins with, and its findings, refused by the ``rule`` that a file names."""
    kept = json.loads(path.read_bytes())
    question = *Seed(kept["manifest"], kept["plan"]).files(), kept.get("key", kept["plan"]["key"])
    assert python_verdict(*question).rule == kept.get("rule")
    if JavaScript.is_available():
        with JavaScript() as javascript:
            assert javascript.verdict(*question) == python_verdict(*question)


def test_generators_are_seeded(seeds):
    assert mutated(seeds[0], random.Random(3)) == mutated(seeds[0], random.Random(3))
    assert np.unique([len(mutated(seeds[0], random.Random(n))[1]) for n in range(20)]).size > 3
