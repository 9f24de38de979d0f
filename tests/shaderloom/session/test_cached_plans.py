"""Sessions with the real compiler: results, declared dynamic dimensions, the disk cache, operators of the caller.

Covers: shaderloom/session, shaderloom/model/model, shaderloom/cache.
"""

from __future__ import annotations

import gc
import mmap
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

import shaderloom
from shaderloom.compiler.ops.registry import registry

from ...support.sessions import engine_of, note_checks

MIXED = """
<ir_version: 8, opset_import: ["" : 17]>
mixed (float[batch, n, 8] x, float[8] b)
    => (float[batch, n, 8] y, int64[4] shape, float[batch, n, 8] copy, float[1] c, float[8, n] z)
<float[1] c = {3.5}> {
    s = Softmax<axis = -1>(x)
    t = Mul(s, b)
    u = Sigmoid(t)
    y = Add(u, x)
    size = Shape(y)
    one = Constant<value_ints = [1]>()
    shape = Concat<axis = 0>(size, one)
    copy = Identity(x)
    r = ReduceMax<axes = [0], keepdims = 0>(x)
    z = Transpose<perm = [1, 0]>(r)
}
"""


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(MIXED)
    onnx.checker.check_model(parsed)
    return parsed


def feeds(n: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(n)
    return {
        "x": generator.standard_normal((2, n, 8)).astype(np.float32),
        "b": generator.standard_normal(8).astype(np.float32),
    }


def check(model: onnx.ModelProto, results: list[np.ndarray], n: int) -> None:
    expected = onnx.reference.ReferenceEvaluator(model).run(None, feeds(n))
    for mine, other in zip(results, expected, strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(mine, other, atol=1e-5)


@pytest.mark.parametrize("dynamic", [{}, {"n": (1, 64)}], ids=["concrete", "dynamic"])
def test_results_are_those_of_the_reference(each_device, model, dynamic):
    with shaderloom.InferenceSession(model, device=each_device, cache=False, dynamic=dynamic) as session:
        for n in (5, 7, 5, 64):
            check(model, session.run(None, feeds(n)), n)
        assert session.stats.misses == (1 if dynamic else 3)
        names = ["z", "c", "copy"]
        again = session.run(names, feeds(5))
        everything = dict(zip([port.name for port in session.get_outputs()], session.run(None, feeds(5))))
        for name, mine in zip(names, again):
            np.testing.assert_array_equal(mine, everything[name])


def test_web_limits_suffice(web_device, model):
    with shaderloom.InferenceSession(model, device=web_device, cache=False) as session:
        check(model, session.run(None, feeds(9)), 9)


def test_a_plan_from_the_disk_gives_the_same_bits(device, model, cache_folder):
    results = []
    for expected_hits in (0, 1):
        with shaderloom.InferenceSession(model, device=device) as session:
            results.append(session.run(None, feeds(6)))
            assert session.stats.disk_hits == expected_hits
    for cold, warm in zip(*results):
        np.testing.assert_array_equal(cold, warm)


def test_both_paths_to_the_device_and_unchecked_shaders_agree(device, model):
    results = []
    for options in ({}, {"use_native": False}, {"bounds_checks": False}):
        with shaderloom.InferenceSession(model, device=device, cache=False, **options) as session:
            results.append(session.run(None, feeds(6)))
    for other in results[1:]:
        for mine, theirs in zip(results[0], other):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("wanted", [None, True, False])
def test_shaders_of_this_user_go_unchecked(device, model, cache_folder, monkeypatch, kind, wanted):
    asked = note_checks(monkeypatch)
    monkeypatch.setattr(device, "profile", replace(device.profile, kind=kind))
    checked = kind == "cpu" if wanted is None else wanted
    for _ in ("compiled", "read from the disk"):
        gc.collect()  # pipelines of the session before
        with shaderloom.InferenceSession(model, device=device, bounds_checks=wanted) as session:
            session.run(None, feeds(6))
        assert asked
        assert set(asked) == {checked}
        asked.clear()


def test_unknown_compiler_options_are_refused(device, model):
    with (
        shaderloom.InferenceSession(model, device=device, cache=False, options={"magic": True}) as session,
        pytest.raises(shaderloom.InputError, match="'magic'"),
    ):
        session.run(None, feeds(5))


def test_plans_with_operators_of_the_caller_stay_off_the_disk(device, model, cache_folder):
    template = registry.get("Relu")

    def infer(node):
        return template.infer(node)

    shaderloom.register_operator(
        name="Twice",
        domain="my.domain",
        infer=infer,
        element=lambda node, operands: operands[0] + operands[0],
    )
    try:
        custom = onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 17, "my.domain" : 1]>
            twice (float[n] x) => (float[n] y) { y = my.domain.Twice(x) }"""
        )
        with shaderloom.InferenceSession(custom, device=device) as session:
            (result,) = session.run(None, {"x": np.array([1, -2], np.float32)})
        np.testing.assert_array_equal(result, [2, -4])
        assert not list(cache_folder.rglob("*.entry"))
    finally:
        for definitions in (registry._definitions._table, registry._definitions._settled):
            definitions.pop(("my.domain", "Twice"), None)


@pytest.fixture
def external(tmp_path):
    """A model whose only weight lies in a data file; gives the model's path and the weight."""
    weight = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    (tmp_path / "weights").mkdir()
    return save_external(tmp_path / "model.onnx", weight), weight


def save_external(path, weight: np.ndarray):
    graph = onnx.parser.parse_graph("g (float[5000] x) => (float[5000] y) { y = Mul(x, w) }")
    graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, path, save_as_external_data=True, location="weights/w.bin", size_threshold=0)
    return path


def test_weights_in_data_files(device, external, cache_folder):
    path, weight = external
    x = np.random.default_rng(1).standard_normal(5000).astype(np.float32)
    for expected_hits in (0, 1):
        with shaderloom.InferenceSession(path, device=device) as session:
            (result,) = session.run(None, {"x": x})
            np.testing.assert_array_equal(result, x * weight)
            assert session.stats.disk_hits == expected_hits
    data = path.parent / "weights" / "w.bin"
    data.unlink()  # a new file, whatever the resolution of the clock
    data.write_bytes((weight * 2).tobytes())
    with shaderloom.InferenceSession(path, device=device) as session:
        (result,) = session.run(None, {"x": x})
        assert session.stats.disk_hits == 0, "the data file is part of the model's identity"
    np.testing.assert_array_equal(result, x * weight * 2)
    data.unlink()
    with pytest.raises(shaderloom.ModelError, match=r"w\.bin"):
        shaderloom.InferenceSession(path, device=device)


def test_a_model_file_is_not_held_in_memory(device, external):
    """The weight pool reads the mapped file itself; no array of the weight is made on the way."""
    path, weight = external
    with shaderloom.InferenceSession(path, device=device, cache=False) as session:
        session.prepare()
        (source,) = engine_of(session).last.compiled.plan.sources
        view = engine_of(session).source.sources(source)
        assert view.readonly
        assert isinstance(view.obj, mmap.mmap)
        assert bytes(view) == weight.tobytes()
        del view


@pytest.mark.parametrize("names", [("m", "k"), ("step", "n"), ("batch", "row"), ("q", "lane"), ("a.b", "a_b")])
def test_dynamic_dimensions_may_have_any_name(device, names):
    """Kernels have loop variables of their own; a dimension of the same name is another thing."""
    rows, inner = names
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["product"]),
        onnx.helper.make_node("Softmax", ["product"], ["y"]),
        onnx.helper.make_node("Transpose", ["x"], ["t"]),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [value("x", onnx.TensorProto.FLOAT, [rows, inner]), value("w", onnx.TensorProto.FLOAT, [inner, 6])],
        [value("y", onnx.TensorProto.FLOAT, [rows, 6]), value("t", onnx.TensorProto.FLOAT, [inner, rows])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    generator = np.random.default_rng(0)
    with shaderloom.InferenceSession(
        model, device=device, cache=False, dynamic={rows: (1, 64), inner: (1, 64)}
    ) as session:
        for m, k in ((5, 7), (1, 3), (33, 16)):
            x, w = generator.standard_normal((m, k), np.float32), generator.standard_normal((k, 6), np.float32)
            y, t = session.run(None, {"x": x, "w": w})
            scores = np.exp(x @ w - (x @ w).max(axis=1, keepdims=True))
            np.testing.assert_allclose(y, scores / scores.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-6)
            np.testing.assert_array_equal(t, x.T)
        assert session.stats.misses == 1


def counting_loop(count: int) -> onnx.ModelProto:
    """y = x + 1, ``count`` times over."""
    value = onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Identity", ["going"], ["on"]),
            onnx.helper.make_node("Constant", [], ["one"], value_float=1.0),
            onnx.helper.make_node("Add", ["state", "one"], ["next"]),
        ],
        "body",
        [
            value("step", onnx.TensorProto.INT64, []),
            value("going", onnx.TensorProto.BOOL, []),
            value("state", onnx.TensorProto.FLOAT, [3]),
        ],
        [value("on", onnx.TensorProto.BOOL, []), value("next", onnx.TensorProto.FLOAT, [3])],
    )
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Loop", ["limit", "", "x"], ["y"], body=body)],
        "g",
        [value("x", onnx.TensorProto.FLOAT, [3])],
        [value("y", onnx.TensorProto.FLOAT, [3])],
        [onnx.numpy_helper.from_array(np.array(count), "limit")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)


def test_the_cap_on_loop_iterations(device):
    feeds = {"x": np.zeros(3, np.float32)}
    with shaderloom.InferenceSession(
        counting_loop(5), device=device, cache=False, caps=shaderloom.Caps(loop_iterations=5)
    ) as session:
        assert session.run(None, feeds)[0].tolist() == [5.0, 5.0, 5.0]
    with (
        shaderloom.InferenceSession(
            counting_loop(6), device=device, cache=False, caps=shaderloom.Caps(loop_iterations=5)
        ) as session,
        pytest.raises(shaderloom.LimitError, match="at most 5") as caught,
    ):
        session.run(None, feeds)
    assert "loop_iterations" in str(caught.value)
