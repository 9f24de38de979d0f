"""The session: inputs, shape keys, plans, statistics, disk cache.  The plans are written by hand."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import shaderloom
from shaderloom.cache import compiler_version
from shaderloom.runtime.plan.errors import (
    ClosedError,
    InputError,
    LimitError,
    ModelError,
    ShaderloomError,
)

from ...support.patience import PATIENCE
from ...support.plans import compile_two_call, replace_compiler, two_call_model
from ...support.sessions import engine_of


@pytest.fixture
def compiled(monkeypatch):
    """Puts the hand-written plan in place of the compiler; gives the list of shapes that were compiled."""
    shapes_seen = []

    def compile_and_count(imported, bound):
        shapes_seen.append(bound.shapes["x"])
        return compile_two_call(imported, bound)

    replace_compiler(monkeypatch, compile_and_count)
    return shapes_seen


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.onnx"
    target.write_bytes(two_call_model().SerializeToString())
    return target


def values(count: int) -> np.ndarray:
    return np.random.default_rng(count).random(count, np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    return (x * 2 + 2 * np.resize(np.arange(10, dtype=np.float32), x.shape)) * 2


def open_session(device, model, cache=False, **options) -> shaderloom.InferenceSession:
    return shaderloom.InferenceSession(model, device=device, cache=cache, **options)


@pytest.mark.parametrize("form", ["path", "text", "bytes", "proto"])
def test_every_form_of_a_model(device, compiled, path, form):
    model = {
        "path": path,
        "text": str(path),
        "bytes": path.read_bytes(),
        "proto": two_call_model(),
    }[form]
    with open_session(device, model) as session:
        (result,) = session.run(None, {"x": values(30)})
    np.testing.assert_allclose(result, expected(values(30)), rtol=1e-6)


def test_ports_are_those_of_onnxruntime(device, compiled):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = two_call_model(elements=1).SerializeToString()
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    with open_session(device, model) as ours:
        for mine, other in (
            *zip(ours.get_inputs(), theirs.get_inputs()),
            *zip(ours.get_outputs(), theirs.get_outputs()),
        ):
            assert (mine.name, mine.type, mine.shape) == (other.name, other.type, other.shape)
        for name in (
            "producer_name",
            "domain",
            "description",
            "graph_name",
            "graph_description",
            "version",
            "custom_metadata_map",
        ):
            assert getattr(ours.get_modelmeta(), name) == getattr(theirs.get_modelmeta(), name), name
        x = values(10)
        (mine,), (other,) = ours.run(["y"], {"x": x}), theirs.run(["y"], {"x": x})
        np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_shapes_select_plans(device, compiled, path):
    with open_session(device, path, dynamic="off") as session:
        for count in (10, 20, 10, 20, 30, 10):
            (result,) = session.run(["y"], {"x": values(count)})
            np.testing.assert_allclose(result, expected(values(count)), rtol=1e-6)
        assert compiled == [(10,), (20,), (30,)]
        stats = session.stats
        assert (stats.hits, stats.misses, stats.disk_hits, stats.evictions) == (3, 3, 0, 0)
        assert set(stats.keys) == {"x=10", "x=20", "x=30"}
        assert stats.compile_ms == pytest.approx(sum(row.compile_ms for row in stats.keys.values()))
        assert stats.keys["x=10"].runs == 3
        assert stats.last_key == "x=10"
        assert engine_of(session).resources.pool.uploaded_bytes == 40, "the plans share the weight"


def test_the_least_recently_used_plan_goes(device, compiled, path):
    with open_session(device, path, plans=2, dynamic="off") as session:
        for count in (10, 20, 10, 30, 10, 20):
            session.run(None, {"x": values(count)})
        assert compiled == [(10,), (20,), (30,), (20,)]
        assert session.stats.evictions == 2


def test_memory_is_given_back(device, compiled, path):
    session = open_session(device, path)
    session.run(None, {"x": values(100)})
    assert session.device_bytes > 0
    account = engine_of(session).resources.account
    session.close()
    session.close()
    assert account.used == 0
    for use in (
        lambda: session.run(None, {"x": values(100)}),
        lambda: session.prepare({"x": (100,)}),
        lambda: session.report(),
        lambda: session.profile({"x": values(100)}),
    ):
        with pytest.raises(ClosedError):
            use()


def test_a_forgotten_session_is_collected(device, compiled, path):
    session = open_session(device, path)
    session.run(None, {"x": values(100)})
    del session
    gc.collect()
    with open_session(device, path) as other:
        (result,) = other.run(None, {"x": values(100)})
    np.testing.assert_allclose(result, expected(values(100)), rtol=1e-6)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "no value was given for 'x'"),
        ({"x": None}, "no value"),
        ({"y": values(10)}, "no input 'y'"),
        ({"x": values(10), "z": values(10)}, "no input 'z'"),
        ({"x": values(10).astype(np.float64)}, "float64, expected float32"),
        ({"x": values(10)[None]}, r"rank 2 .* expected 1: the model declares \[N\]"),
        ({"x": [0.1]}, "not exactly representable"),
        ({"x": [True]}, "not exactly representable"),
        ({"x": ["a"]}, "not exactly representable"),
        ({"x": [[1], [1, 2]]}, "is not an array"),
        ([values(10)], "dict of name to array"),
    ],
)
def test_wrong_inputs_are_refused_and_the_session_stays_usable(device, compiled, path, feeds, message):
    with open_session(device, path) as session:
        with pytest.raises(InputError, match=message):
            session.run(None, feeds)
        (result,) = session.run(None, {"x": values(10)})
        np.testing.assert_allclose(result, expected(values(10)), rtol=1e-6)


def test_wrong_output_name(device, compiled, path):
    with open_session(device, path) as session, pytest.raises(InputError, match="no output 'q'"):
        session.run(["q"], {"x": values(10)})


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: np.repeat(x, 2)[::2],
        lambda x: x[::-1][::-1],
        lambda x: x.astype(">f4"),
        lambda x: np.asfortranarray(x),
    ],
)
def test_memory_layout_of_inputs_does_not_matter(device, compiled, path, convert):
    with open_session(device, path) as session:
        (result,) = session.run(None, {"x": convert(values(20))})
    np.testing.assert_allclose(result, expected(values(20)), rtol=1e-6)


def test_exact_lists_are_converted(device, compiled, path):
    with open_session(device, path) as session:
        for given in ([1, 2, 3], [0.5, 0.25], (7,), [np.float32(0.1)]):
            (result,) = session.run(None, {"x": given})
            np.testing.assert_allclose(result, expected(np.asarray(given, np.float32)), rtol=1e-6)


def test_wrong_options(device, path):
    for options, message in (
        ({"dynamic": {"Q": (1, 2)}}, "no input has a dimension 'Q'"),
        ({"dynamic": {"N": (5, 2)}}, r"must be \(low, high\)"),
        ({"providers": ["tpu"]}, "no provider 'tpu'"),
        ({"providers": "wgpu"}, "list of names"),
        ({"plans": 0}, "at least one plan"),
    ):
        with pytest.raises(InputError, match=message):
            open_session(device, path, **options)
    with pytest.raises(InputError, match="path, bytes, a ModelProto or an ONNXProgram, not int"):
        open_session(device, 5)


def test_bad_files(device, tmp_path):
    missing, folder, junk = tmp_path / "a.onnx", tmp_path, tmp_path / "b.onnx"
    junk.write_bytes(b"\xff" * 100)
    for model in (missing, folder, junk, b"", b"junk" * 10):
        with pytest.raises(ShaderloomError):
            open_session(device, model)


def test_caps_reach_the_executor(device, compiled, path):
    with (
        open_session(device, path, caps=shaderloom.Caps(tensor_elements=50)) as session,
        pytest.raises(LimitError, match="cap is 50"),
    ):
        session.run(None, {"x": values(100)})
    session = open_session(device, path, caps=shaderloom.Caps(device_memory=256))
    with pytest.raises(LimitError, match="cap is 256"):
        session.run(None, {"x": values(100)})
    session.close()
    assert engine_of(session).resources.account.used == 0


def test_report(device, compiled, path):
    with open_session(device, path) as session:
        with pytest.raises(InputError, match="give the shapes"):
            session.report()
        session.run(None, {"x": values(30)})
        report = session.report()
        assert report["nodes"] == 3
        assert [kernel["template"] for kernel in report["kernels"]] == ["map", "map"]
        assert report["kernels"][0]["origins"] == ["Mul (main node 0)", "Add (main node 1)"]
        assert (report["calls"], report["weight_transforms"], report["runs"]) == (2, 1, 1)
        assert session.report({"x": (20,)})["shape_key"] == {"x": [20]}


def test_profile(device, compiled, path):
    with open_session(device, path) as session:
        assert [call.label for call in session.profile({"x": values(10)}).calls] == ["scale", "double"]


def test_threads_share_a_session(device, compiled, path):
    """One plan is loaded at a time, so threads with other shapes evict it."""
    with open_session(device, path, plans=1, dynamic="off") as session, ThreadPoolExecutor(3) as threads:

        def work(count: int) -> None:
            for _ in range(10):
                (result,) = session.run(None, {"x": values(count)})
                np.testing.assert_allclose(result, expected(values(count)))

        assert list(threads.map(work, (10, 20, 30))) == [None] * 3
        assert session.stats.misses >= 3


def note(stages: Counter[str], stage: str, done: int, total: int) -> None:
    """Count the progress reports of a session by their stage."""
    stages[stage] += 1


def test_the_disk_cache_replaces_the_compiler(device, compiled, path, cache_folder):
    x = values(20)
    with open_session(device, path, cache=True) as session:
        (first,) = session.run(None, {"x": x})
        assert (session.stats.misses, session.stats.disk_hits) == (1, 0)
    stages: Counter[str] = Counter()
    with open_session(device, path, cache=True, progress=partial(note, stages)) as session:
        (second,) = session.run(None, {"x": x})
        assert (session.stats.misses, session.stats.disk_hits) == (1, 1)
    assert stages and "reading the model" not in stages, "a hit must not parse the file"
    assert compiled == [(20,)]
    np.testing.assert_array_equal(first, second)


def test_a_model_in_memory_is_cached_by_content(device, compiled, path, cache_folder):
    for parsed in (1, 0):
        stages: Counter[str] = Counter()
        with open_session(device, path.read_bytes(), cache=True, progress=partial(note, stages)) as session:
            session.run(None, {"x": values(20)})
        assert stages["reading the model"] == parsed
    assert session.stats.disk_hits == 1
    with open_session(device, two_call_model(elements=5), cache=True) as other:
        other.run(None, {"x": values(20)})
    assert other.stats.disk_hits == 0


def test_a_changed_file_is_not_a_hit(device, compiled, path, cache_folder):
    with open_session(device, path, cache=True) as session:
        session.run(None, {"x": values(20)})
    path.write_bytes(two_call_model(elements=5).SerializeToString())
    with open_session(device, path, cache=True) as session:
        (result,) = session.run(None, {"x": values(5)})
        assert session.stats.disk_hits == 0
    np.testing.assert_allclose(result, (values(5) * 2 + 2 * np.arange(5, dtype=np.float32)) * 2, rtol=1e-6)


def test_a_file_replaced_under_a_session_is_an_error(device, compiled, path, cache_folder):
    path.write_bytes(two_call_model(elements=5000).SerializeToString())  # too large to be part of the plan
    with open_session(device, path, cache=True) as session:
        (result,) = session.run(None, {"x": values(5000)})
        np.testing.assert_allclose(result, (values(5000) * 2 + 2 * np.arange(5000)) * 2, rtol=1e-6)
    session = open_session(device, path, cache=True)  # from the header in the cache: nothing is mapped yet
    path.unlink()
    path.write_bytes(two_call_model(elements=5000).SerializeToString() + b" ")
    with session, pytest.raises(ModelError, match="has changed"):
        session.run(None, {"x": values(5000)})
    assert engine_of(session).resources.account.used == 0


def test_options_and_device_are_part_of_the_key(device, compiled, path, cache_folder):
    for options in ({"options": {"verify": True}}, {"dynamic": "off"}, {"dynamic": {"N": (1, 100)}}):
        with open_session(device, path, cache=True, **options) as session:
            session.prepare({"x": (20,)})
            assert session.stats.disk_hits == 0


def test_a_warm_process_needs_neither_onnx_nor_the_compiler(device, compiled, path, cache_folder):
    compiler_version.cache_clear()  # the sources as the other process will see them
    with open_session(device, path, cache=True) as session:
        (first,) = session.run(None, {"x": values(20)})
    program = f"""
        import sys
        import numpy as np, shaderloom
        session = shaderloom.InferenceSession({str(path)!r}, device={device.name!r})
        x = np.random.default_rng(20).random(20, np.float32)
        print(session.run(None, {{"x": x}})[0].tobytes().hex())
        print(*sys.modules, sep="\\n")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert result.returncode == 0, result.stderr
    answer, *loaded = result.stdout.split()
    assert bytes.fromhex(answer) == first.tobytes()
    banned = {"onnx", "jinja2", "networkx", "google.protobuf", "asyncio", "importlib.metadata"}
    assert not banned & set(loaded)
    compiler = {name.split(".")[2] for name in loaded if name.startswith("shaderloom.compiler.")}
    assert compiler <= {"compilation", "options", "remarks", "target", "tuning"}
