"""Whole bundles with right digests and hostile contents: a result, or an error of this package, and soon.

Covers: runtime/bundle/reader, runtime/bundle/manifest, runtime/bundle/plan, shaderloom/bundles/session.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

import shaderloom
from shaderloom.runtime.bundle.integrity import digest_line
from shaderloom.runtime.bundle.reader import Bundle

from ...support.bundles import copy_bundle, feeds, seal, small_bundle, write_manifest
from ...support.effort import SOAK
from ...support.hostile import RELATIONS, Seed, mutated, put

HEAD = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("hostile") / "small", 5)


@pytest.fixture(scope="module")
def seed(folder) -> Seed:
    return Seed.of(folder)


def written(folder: Path, target: Path, manifest: bytes, plan: bytes, seed: Seed) -> Path:
    """A copy of a bundle with another manifest or plan, and the digests that they need."""
    made = copy_bundle(folder, target)
    (made / f"plan-{seed.key}.json").write_bytes(plan)
    seal(made)
    if manifest != seed.files()[0]:
        try:
            content = json.loads(manifest)
            record = json.loads((made / "manifest.json").read_bytes())["files"][f"plan-{seed.key}.json"]
            if plan != seed.files()[1]:
                content["files"][f"plan-{seed.key}.json"] = record
            write_manifest(made, content)
        except (ValueError, KeyError, TypeError, RecursionError):
            (made / "manifest.json").write_bytes(manifest)
            (made / "manifest.sha256").write_bytes(digest_line(manifest))
    return made


def outcome(path: Path, device=None) -> str:
    """Open, check and with a device run the bundle; the kind of error, or "ran"."""
    try:
        with Bundle(path) as bundle:
            bundle.check_all()
        if device is not None:
            with shaderloom.load_bundle(path, device=device) as session:
                session.run(None, feeds(5))
    except shaderloom.ShaderloomError as error:
        return type(error).__name__ if str(error).isprintable() else f"unprintable {error!r}"
    return "ran"


def test_the_bundle_itself_runs(folder, device):
    assert outcome(folder, device) == "ran"


@pytest.mark.slow
def test_the_catalogue_is_refused(folder, seed, tmp_path):
    for name, (file, change, _) in RELATIONS.items():
        path = written(folder, tmp_path / name.replace(" ", "-"), *seed.changed(file, change).files(), seed)
        start = time.process_time()
        assert outcome(path) == "BundleError", name
        assert time.process_time() - start < 5, name


@pytest.mark.slow
@pytest.mark.fuzz
def test_random_mutations_end_in_a_result_or_an_error_of_ours(folder, seed, device, tmp_path):
    """For 20 seconds, in a soak for 300; a failure names the number that draws it again."""
    first = random.SystemRandom().randrange(1 << 40) if SOAK else 0
    end, number, outcomes = time.monotonic() + (300 if SOAK else 20), first, Counter()
    while time.monotonic() < end:
        path = written(folder, tmp_path / str(number), *mutated(seed, random.Random(number)), seed)
        try:
            outcomes[outcome(path, device)] += 1
        except Exception as error:
            pytest.fail(f"mutation {number}: {type(error).__name__}: {error}")
        shutil.rmtree(path)
        number += 1
    assert outcomes["BundleError"] > 10 and not any("unprintable" in kind for kind in outcomes), outcomes


def test_a_shader_that_would_end_the_process_is_refused(folder, device, tmp_path):
    made = copy_bundle(folder, tmp_path / "b")
    constants = "const c0 = array(1.0, 1.0);" + "".join(f"const c{i + 1} = array(c{i}, c{i});" for i in range(24))
    for path in (made / "shaders").iterdir():
        path.write_text(f"{HEAD}{constants}@compute @workgroup_size(1) fn main() {{ var q = c24; y[0] = 1.0; }}")
    seal(made)
    assert outcome(made, device) == "LimitError"


def test_a_size_that_a_run_finds_outside_is_an_error_of_the_bundle(device, tmp_path):
    """Bounds of a range that depends on symbols prove nothing: the run finds it outside its buffer."""
    path = small_bundle(tmp_path / "b", 5, dynamic={"n": (1, 64)})
    for file in path.glob("plan-*.json"):
        plan = json.loads(file.read_bytes())
        put(["*", "n", 128], "steps", 0, "calls", 0, "ranges", 0, "size")(plan)
        file.write_text(json.dumps(plan))
    seal(path)
    with (
        shaderloom.load_bundle(path, device=device) as session,
        pytest.raises(shaderloom.BundleError, match="binds bytes"),
    ):
        session.run(None, feeds(5))


def test_sizes_that_a_run_finds_negative_are_an_error_of_the_bundle(device, tmp_path):
    path = small_bundle(tmp_path / "b", 5, dynamic={"n": (1, 64)})
    for file in path.glob("plan-*.json"):
        plan = json.loads(file.read_bytes())
        output = next(index for index, port in enumerate(plan["outputs"]) if port["name"] == "y")
        put(["+", "n", -40], "outputs", output, "shape", 1)(plan)
        file.write_text(json.dumps(plan))
    seal(path)
    with (
        shaderloom.load_bundle(path, device=device) as session,
        pytest.raises(shaderloom.BundleError, match="negative size"),
    ):
        session.run(None, feeds(5))
