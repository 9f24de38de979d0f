"""Whole bundles with right digests and hostile contents: a result, or an error of this package, and soon.

Covers: runtime/bundle/reader, runtime/bundle/manifest, runtime/bundle/plan, shaderloom/bundles/session.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import shaderloom
from shaderloom import BundleError, Tensor
from shaderloom.runtime.bundle.reader import Bundle

from ...support.bundles import cache_bundle, cache_feeds, copy_bundle, feeds, files_of, seal, small_bundle
from ...support.effort import SOAK
from ...support.hostile import Change, Seed, put
from ...support.hostile_mutations import mutated
from ...support.hostile_relations import BEYOND_LIMITS, CALL, FOUND_BY_RUNS, RELATIONS, STATES, with_alias_chain
from ...support.verdicts import python_verdict
from ...support.work import calls_of

HEAD = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("hostile") / "small", 5)


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory) -> Path:
    """Declared dimensions, whose bounds prove little about a run; one plan, so that it is the changed one."""
    options = {"dynamic": {"n": (1, 64), "batch": (2, 8, 2)}, "target": "web-software"}
    return small_bundle(tmp_path_factory.mktemp("dynamic") / "b", 5, **options)


@pytest.fixture(scope="module")
def bundle(folder) -> dict[str, bytes]:
    return files_of(folder)


@pytest.fixture(scope="module")
def seed(folder) -> Seed:
    return Seed.of(folder)


def written(files: dict[str, bytes], target: Path) -> Path:
    """A folder with the files of a bundle."""
    for name, content in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return target


def outcome(path: Path, device=None, fed: Mapping[str, np.ndarray] | None = None) -> str:
    """Open, check and with a device run the bundle, by default the small one; the kind of error, or "ran"."""
    try:
        with Bundle(path) as bundle:
            bundle.check_all()
        if device is not None:
            with shaderloom.load_bundle(path, device=device) as session:
                session.run(None, feeds(5) if fed is None else fed)
    except shaderloom.ShaderloomError as error:
        return type(error).__name__ if str(error).isprintable() else f"unprintable {error!r}"
    return "ran"


def test_the_bundle_itself_runs(folder, device):
    assert outcome(folder, device) == "ran"


@pytest.mark.slow
def test_the_catalogue_is_refused(bundle, seed, tmp_path):
    for name, (file, change, _) in RELATIONS.items():
        files = seed.sealed(bundle, *seed.changed(file, change).files())
        path = written(files, tmp_path / name.replace(" ", "-"))
        outcomes: list[str] = []
        calls = calls_of(lambda path=path, outcomes=outcomes: outcomes.append(outcome(path)))
        assert outcomes == ["BundleError"], name
        assert calls < 4 * sum(map(len, files.values())), name


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["small", "cache"])
def test_random_mutations_end_in_a_result_or_an_error_of_ours(folder, device, tmp_path, kind):
    """For 10 seconds, in a soak for 150; a failure names the number that draws it again."""
    fed, source = feeds(5), folder
    if kind == "cache":
        options = {"dynamic": {"batch": (1, 8)}, "target": "web-software"}
        fed, source = cache_feeds()[0], cache_bundle(tmp_path / "cache", **options)
    bundle, seed = files_of(source), Seed.of(source)
    first = random.SystemRandom().randrange(1 << 40) if SOAK else 0
    end, number, outcomes = time.monotonic() + (150 if SOAK else 10), first, Counter()
    while time.monotonic() < end:
        path = written(seed.sealed(bundle, *mutated(seed, random.Random(number))), tmp_path / str(number))
        try:
            outcomes[outcome(path, device, fed)] += 1
        except Exception as error:
            pytest.fail(f"mutation {number}: {type(error).__name__}: {error}")
        shutil.rmtree(path)
        number += 1
    assert outcomes["BundleError"] > 10 and not any("unprintable" in kind for kind in outcomes), outcomes


@pytest.mark.slow
def test_a_long_chain_of_aliases_runs(bundle, seed, device, tmp_path):
    def calls(length: int) -> int:
        chain, given = with_alias_chain(seed, length), feeds(5)
        path = written(chain.sealed(bundle, chain.files()[0], chain.files()[1] + b" "), tmp_path / f"{length}")
        results: list[np.ndarray] = []

        def run() -> None:
            with shaderloom.load_bundle(path, device=device) as session:
                results.extend(session.run(None, given))

        count = calls_of(run)
        assert all(np.array_equal(result, given["x"]) for result in results[-length:])
        return count

    assert calls(10_000) < 11 * calls(1000)


def test_a_shader_that_would_end_the_process_is_refused(folder, device, tmp_path):
    made = copy_bundle(folder, tmp_path / "b")
    constants = "const c0 = array(1.0, 1.0);" + "".join(f"const c{i + 1} = array(c{i}, c{i});" for i in range(24))
    for path in (made / "shaders").iterdir():
        path.write_text(f"{HEAD}{constants}@compute @workgroup_size(1) fn main() {{ var q = c24; y[0] = 1.0; }}")
    seal(made)
    assert outcome(made, device) == "LimitError"


BEYOND_WORKGROUPS: dict[str, tuple[str, Change]] = {
    "a workgroup beyond 32 bits": ("plan", put([1 << 40, 1, 1], "kernels", 0, "workgroup")),
    "workgroup memory of a terabyte": ("plan", put(1 << 40, "kernels", 0, "workgroup_bytes")),
}


@pytest.mark.parametrize("name", [*BEYOND_LIMITS, *BEYOND_WORKGROUPS])
def test_more_than_a_device_has_is_refused(bundle, seed, device, tmp_path, name):
    files = seed.changed(*{**BEYOND_LIMITS, **BEYOND_WORKGROUPS}[name]).files()
    assert python_verdict(*files, seed.key).rule is None
    told = outcome(written(seed.sealed(bundle, *files), tmp_path / "b"), device)
    assert told in ("LimitError", "DeviceLimitError", "DeviceError")


#: Memory that no device has: of the small model, and whatever its declared dimensions are
ABSURD: dict[str, tuple[str, Change]] = {
    "an arena": ("plan", put([1 << 40], "arenas")),
    "many arenas": ("plan", put([1 << 28] * 300, "arenas")),
    "an arena of any size": ("plan", put([["*", ["max", ["+", "n", -2], 1], "batch", 1 << 38]], "arenas")),
    "an output": ("plan", put(["batch", "n", 1 << 38], "outputs", 0, "shape")),
}


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_memory_is_refused_before_anything_is_made(device, tmp_path, dynamic, name, monkeypatch):
    def made(*_: object, **__: object) -> None:
        pytest.fail("made before the plan was refused")

    for method in ("create_module", "create_buffer"):
        monkeypatch.setattr(type(device), method, made)
    seed = Seed.of(dynamic)
    files = seed.changed(*ABSURD[name]).files()
    path = written(seed.sealed(files_of(dynamic), *files), tmp_path / "b")
    assert outcome(path, device, feeds(5)) in ("LimitError", "DeviceLimitError")


@pytest.mark.parametrize("name", FOUND_BY_RUNS)
def test_what_bounds_leave_open_is_found_by_the_run(device, tmp_path, dynamic, name):
    seed = Seed.of(dynamic)
    files = seed.changed(*FOUND_BY_RUNS[name]).files()
    assert python_verdict(*files, seed.key).rule is None
    told = outcome(written(seed.sealed(files_of(dynamic), *files), tmp_path / "b"), device)
    assert told == "BundleError"


#: Ranges of the cache's output that both readers accept, and that leave its tensor where it is small
BEYOND_TENSORS = {"open": ["+", ["*", "batch", 96], 256], "fixed": 768, "moved": ["*", "batch", 96]}


@pytest.mark.parametrize("name", BEYOND_TENSORS)
def test_no_call_leaves_a_tensor_of_the_caller(device, tmp_path, name):
    """What lies behind a tensor in a buffer of the caller's is no memory of the plan."""
    path = cache_bundle(tmp_path / "b", dynamic={"batch": (1, 8)}, target="web-software")
    seed, (fed, expected) = Seed.of(path), cache_feeds()
    change = put(BEYOND_TENSORS[name], *CALL, "ranges", 2, "offset" if name == "moved" else "size")
    files = seed.changed("plan", change).files()
    assert python_verdict(*files, seed.key).rule is None
    hostile = written(seed.sealed(files_of(path), *files), tmp_path / "hostile")
    content = np.full(512, 7, np.float32)
    content[:48] = fed["past"].ravel()
    memory = Tensor.from_numpy(content, device)
    past = Tensor.from_gpu_buffer(memory.gpu_buffer, "float32", (2, 6, 4))
    with (
        shaderloom.load_bundle(hostile, device=device) as session,
        pytest.raises(BundleError, match="'output:present', which has 192"),
    ):
        session.run(None, fed | {"past": past}, outputs={"present": past})
    np.testing.assert_array_equal(memory.numpy(), content)
    with shaderloom.load_bundle(path, device=device) as session:
        session.run(None, fed | {"past": past}, outputs={"present": past})
    content[:48] = expected.ravel()
    np.testing.assert_array_equal(memory.numpy(), content)


def test_a_state_without_a_call_is_its_input(device, tmp_path):
    path = cache_bundle(tmp_path / "b", dynamic={"batch": (1, 8)}, target="web-software")
    seed, (fed, _) = Seed.of(path), cache_feeds()
    files = seed.sealed(files_of(path), *seed.changed("plan", STATES["no call"][0]).files())
    with shaderloom.load_bundle(written(files, tmp_path / "changed"), device=device) as session:
        past = Tensor.from_numpy(fed["past"], device)
        for whole in (fed, fed | {"past": past}):
            np.testing.assert_array_equal(session.run(["present"], whole)[0], fed["past"])
        session.run(["present"], fed | {"past": past}, outputs={"present": past})
        np.testing.assert_array_equal(past.numpy(), fed["past"])
