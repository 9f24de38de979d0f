"""Orders of open sizes: which plans want them, and caches that a run extends in place whatever their capacity."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import shaderloom
from shaderloom.model.open_sizes import GeneralisedShape, SizeHistory
from shaderloom.model.size_orders import SizeOrder, SymbolicSize, compared_sizes
from shaderloom.runtime.plan.plan import Plan, Port, Symbol

from ...support.sessions import engine_of
from ...support.size_keys import key

SIZES = {
    ("a", 0): SymbolicSize(Symbol("a", 9, 64), 0),
    ("b", 0): SymbolicSize(Symbol("b", 9, 64), 0),
    ("c", 0): SymbolicSize(Symbol("b", 9, 64), 3),
}


@pytest.mark.parametrize(
    ("dim", "pairs"),
    [
        (["max", "a", "b"], [(("a", 0), ("b", 0))]),
        (["*", 4, ["min", ["+", 3, "a"], 70]], [(("a", 3), ("", 70))]),
        (["max", ["*", 2, "a"], "b"], []),
        (["+", "a", "b"], []),
        (7, []),
    ],
)
def test_shapes_that_an_order_decides(dim, pairs) -> None:
    port = Port("y", "float32", (1, dim))
    assert compared_sizes(Plan("", (), (port, port), (), (), (), (), (), ())) == pairs


def test_an_order_of_two_symbols() -> None:
    general = GeneralisedShape(SIZES).ordered({"a": 20, "b": 30}, ("b", 3), ("a", 0))
    assert general.orders == (SizeOrder("a", "b", -3),) and str(general) == "a 9 to 64, b 9 to 64, a + -3 at most b"
    assert general.key(key(a=(33,), b=(30,), c=(33,))) is not None
    assert general.key(key(a=(34,), b=(30,), c=(33,))) is None
    larger, smaller = general.dim(SIZES["c", 0]), general.dim(SIZES["a", 0])
    from shaderloom.compiler.symbolic import polynomial as ix

    assert ix.maximum(smaller, larger) == larger and ix.minimum(larger, smaller) == smaller
    assert ix.maximum(smaller, general.dim(SIZES["b", 0])) not in (smaller, larger)


def test_sizes_that_are_equal_become_one() -> None:
    general = GeneralisedShape(SIZES).ordered({"a": 33, "b": 30}, ("a", 0), ("b", 3))
    assert not general.orders and len(general.symbols) == 1
    assert general.key(key(a=(40,), b=(37,), c=(40,))) is not None
    for a, b in ((40, 38), (11, 8), (68, 65)):
        assert general.key(key(a=(a,), b=(b,), c=(b + 3,))) is None


@pytest.mark.parametrize(("value", "low", "high"), [(20, 9, 30), (30, 9, 30), (40, 30, 64)])
def test_a_number_narrows_a_range(value: int, low: int, high: int) -> None:
    general = GeneralisedShape(SIZES).ordered({"a": value, "b": 30}, ("a", 1), ("", 31))
    assert general.ranges["a"][:2] == (low, high) and general.ranges["b"][:2] == (9, 64) and not general.orders


def test_steps_have_no_order() -> None:
    sizes = {("a", 0): SymbolicSize(Symbol("a", 8, 64, 8), 0), ("b", 0): SymbolicSize(Symbol("b", 8, 64, 8), 0)}
    assert GeneralisedShape(sizes).ordered({"a": 8, "b": 16}, ("a", 0), ("b", 0)) == GeneralisedShape(sizes)


def test_what_is_compared_outlives_its_process() -> None:
    seen = SizeHistory()
    for a, b in ((20, 30), (21, 33)):
        seen.note(key(a=(a,), b=(b,)))
    now = key(a=(25,), b=(34,))
    general = seen.generalise(now)
    pairs = [(("a[0]", 0), ("b[0]", 0))]
    assert general is not None and seen.compare(now, general, pairs) and not seen.compare(now, general, pairs)
    better = seen.generalise(now)
    assert better is not None and better.orders == (SizeOrder("a[0]", "b[0]", 0),)
    seen.note(now, better)
    restored = SizeHistory()
    restored.restore(json.loads(json.dumps(seen.to_json())))
    assert restored == seen and restored.generalise(key(a=(26,), b=(33,))) == better
    other = restored.generalise(key(a=(40,), b=(33,)))
    assert other is not None and other.orders == (SizeOrder("b[0]", "a[0]", 0),)


def _decoder(capacity: int | str) -> onnx.ModelProto:
    """Attention of 4 heads over 2 with a cache, whose keys are counted by the length of a mask."""
    half, long = TensorProto.FLOAT, TensorProto.INT64
    node = helper.make_node
    nodes = [
        node("Shape", ["mask"], ["sizes"]),
        node("Gather", ["sizes", "axis"], ["length"]),
        node("Cast", ["length"], ["total"], to=TensorProto.INT32),
        node("Sub", ["length", "one"], ["last"]),
        node("Cast", ["last"], ["ends"], to=TensorProto.INT32),
        node(
            "GroupQueryAttention",
            ["x", "", "", "past_k", "past_v", "ends", "total"],
            ["y", "new_k", "new_v"],
            domain="com.microsoft",
            num_heads=4,
            kv_num_heads=2,
        ),
    ]
    cache = [1, 2, capacity, 8]
    shapes = {"x": [1, "sequence", 64], "past_k": cache, "past_v": cache}
    inputs = [helper.make_tensor_value_info(name, half, shape) for name, shape in shapes.items()]
    inputs.append(helper.make_tensor_value_info("mask", long, [1, "total"]))
    results = {"y": [1, "sequence", 32], "new_k": [1, 2, "present", 8], "new_v": [1, 2, "present", 8]}
    outputs = [helper.make_tensor_value_info(name, half, shape) for name, shape in results.items()]
    constants = [helper.make_tensor(name, long, [1], [value]) for name, value in (("axis", 1), ("one", 1))]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


#: Keys and the capacity: ones that suffice, one that is filled, and (0) as many rows as lie before the new tokens
RUNS = [(20, 30), (25, 40), (21, 33), (50, 50), (33, 200), (30, 0), (20, 0), (64, 0), (40, 90)]


@pytest.mark.parametrize(
    ("capacity", "runs"), [("capacity", RUNS), (40, [(20, 40), (25, 40), (21, 40), (39, 40), (40, 40)])]
)
@pytest.mark.parametrize("tokens", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_caches_are_extended_in_place_where_they_suffice(device, capacity, runs, tokens: int) -> None:
    model = _decoder(capacity)
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    session = shaderloom.InferenceSession(model, device=device, cache=False)
    draw = np.random.default_rng(3).standard_normal
    for total, rows in runs:
        rows = rows or total - tokens
        feeds = {"x": draw((1, tokens, 64)).astype(np.float32), "mask": np.ones((1, total), np.int64)}
        feeds |= {name: draw((1, 2, rows, 8)).astype(np.float32) for name in ("past_k", "past_v")}
        wanted, got = reference.run(None, feeds), session.run(None, feeds)
        np.testing.assert_allclose(got[0], wanted[0], atol=2e-5)
        for ours, theirs in zip(got[1:], wanted[1:], strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours[:, :, :total], theirs[:, :, :total], atol=2e-6)
        plan = engine_of(session).last.compiled.plan
        assert len(plan.states) == (2 if total <= rows else 0), (total, rows, session.stats.last_key)
    assert not session.stats.refused_ranges
    session.close()
