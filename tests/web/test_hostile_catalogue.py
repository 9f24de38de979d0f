"""The catalogue of hostile bundles in Chromium, in one page: the Python reader's rules, and never a foreign error.

Covers: runtime/web/shaderloom.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from ..support.bundles import file_record, files_of, small_bundle
from ..support.effort import SOAK
from ..support.hostile import Change, Seed, structural
from ..support.hostile_relations import BEYOND_LIMITS, FOUND_BY_RUNS, RELATIONS
from ..support.hostile_shaders import EXPANDING
from ..support.verdicts import Verdict, python_verdict
from .attempts import Attempts, Outcome

pytestmark = pytest.mark.slow

#: Of the wrong values that both readers refuse, one in so many is tried
SPARED = 1 if SOAK else 20


@dataclass(frozen=True)
class Case:
    name: str
    files: dict[str, bytes]
    verdict: Verdict


class Bundles:
    """A bundle with one plan, for GPUs and software adapters alike, so that the browser reads a change of it."""

    def __init__(self, path, **options) -> None:
        folder = small_bundle(path, 5, target="web-software", **options)
        self.seed, self.files = Seed.of(folder), files_of(folder)

    def case(self, name: str, file: str, change: Change) -> Case:
        files = self.seed.changed(file, change).files()
        return Case(name, self.seed.sealed(self.files, *files), python_verdict(*files, self.seed.key))

    def with_shader(self, name: str, text: str) -> Case:
        """The plan's kernel with another text, whose one buffer is the kernel's last, which it writes."""
        (kernel,) = self.seed.plan["kernels"]
        shader, data = f"shaders/{kernel['key']}.wgsl", text.replace("@binding(0)", "@binding(4)").encode()
        changed = self.seed.changed("manifest", lambda root: root["files"].update({shader: file_record(data)}))
        return Case(name, {**self.seed.sealed(self.files, *changed.files()), shader: data}, Verdict(None))


@pytest.fixture(scope="module")
def fixed(tmp_path_factory) -> Bundles:
    return Bundles(tmp_path_factory.mktemp("fixed") / "b")


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory) -> Bundles:
    return Bundles(tmp_path_factory.mktemp("dynamic") / "b", dynamic={"n": (1, 64), "batch": (2, 8, 2)})


def outcomes(browser, cases: Iterable[Case]) -> Iterator[tuple[Case, Outcome]]:
    """Try all in one page, which must live through them, as must its device, and check each verdict."""
    listed = list(cases)
    with Attempts(browser, [case.files for case in listed]) as attempts:
        for number, case in enumerate(listed):
            outcome = attempts.outcome(number)
            assert outcome.kind in ("ran", "bundle", "device"), (case.name, outcome)
            assert outcome.verdict == case.verdict, (case.name, outcome)
            assert not outcome.reports and not outcome.losses, (case.name, outcome)
            yield case, outcome
        assert not attempts.restarts


def test_the_bundles_themselves_run(browser, fixed, dynamic):
    cases = [Case("itself", bundles.files, Verdict(None)) for bundles in (fixed, dynamic)]
    assert [outcome.kind for _, outcome in outcomes(browser, cases)] == ["ran", "ran"]


def test_every_relation(browser, fixed):
    cases = [fixed.case(name, file, change) for name, (file, change, _) in RELATIONS.items()]
    for case, outcome in outcomes(browser, cases):
        assert (outcome.kind, outcome.rule) == ("bundle", RELATIONS[case.name][2]), case.name


def test_what_a_run_refuses(browser, fixed, dynamic):
    """Within the rules, and more than the device has, or wrong for the sizes of a run."""
    cases = [fixed.case(name, *change) for name, change in BEYOND_LIMITS.items()]
    for case, outcome in outcomes(browser, cases):
        assert outcome.kind == "device", (case.name, outcome)
    cases = [dynamic.case(name, *change) for name, change in FOUND_BY_RUNS.items()]
    for case, outcome in outcomes(browser, cases):
        assert outcome.kind == "bundle", (case.name, outcome)


def test_wrong_values_of_fields(browser, fixed, dynamic):
    """All that the readers accept, which goes on to be run, and some of the others; in a soak all."""
    for bundles in (fixed, dynamic):
        cases = [bundles.case(*change) for change in structural(bundles.seed)]
        accepted = [case for case in cases if case.verdict.rule is None]
        refused = [case for case in cases if case.verdict.rule is not None]
        kinds = Counter(outcome.kind for _, outcome in outcomes(browser, itertools.chain(accepted, refused[::SPARED])))
        assert kinds["ran"] > 100 and kinds["bundle"] > 100, kinds


def test_shaders_that_expand(browser, fixed):
    """Some of them would never leave the driver, and some end the process in which Chromium compiles."""
    cases = [fixed.with_shader(name, text) for name, text in EXPANDING.items()]
    for case, outcome in outcomes(browser, cases):
        assert outcome.kind == "bundle", (case.name, outcome)
