"""Inputs and outputs beyond a binding: windows of them, and the numbers.

Covers: compiler/passes/large_tensors/ports.py, compiler/passes/large_tensors/splits.py,
compiler/passes/large_tensors/parts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.runtime.execution.requirements import requirements
from shaderloom.runtime.plan.dimension import evaluate
from shaderloom.runtime.plan.errors import DeviceLimitError
from shaderloom.runtime.plan.plan import Plan

from ...support.comparison import reference, relative_error
from ...support.kernels import make_model
from ...support.large_weights import Model, floats, limited, made
from ...support.running import compile_for, run_plan

node = helper.make_node
LIMIT = 1 << 14
AXIS = np.array([1])

CASES = {
    "arithmetic": lambda: made([node("Mul", ["x", "x"], ["p"]), node("Sin", ["p"], ["y"])], {"x": floats(301, 64)}),
    "odd rows": lambda: made([node("Exp", ["x"], ["y"])], {"x": floats(1001, 17)}),
    "one axis": lambda: made([node("Exp", ["x"], ["y"])], {"x": floats(9001)}),
    "batch of one": lambda: made([node("Neg", ["x"], ["y"])], {"x": floats(1, 1, 300, 33)}),
    "sum of rows": lambda: made([node("ReduceSum", ["x", "a"], ["y"])], {"x": floats(301, 64)}, a=AXIS),
    "sum of columns": lambda: made([node("ReduceSum", ["x", "a"], ["y"])], {"x": floats(301, 64)}, a=AXIS - 1),
    "softmax": lambda: made([node("Softmax", ["x"], ["y"], axis=1)], {"x": floats(301, 64)}),
    "outer sum": lambda: made([node("Add", ["x", "z"], ["y"])], {"x": floats(300, 1), "z": floats(64)}),
    "product": lambda: made([node("MatMul", ["x", "z"], ["y"])], {"x": floats(120, 24), "z": floats(24, 64)}),
    "logits": lambda: made(
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["q"]), node("Reshape", ["q", "s"], ["y"])],
        {"x": floats(40, 32)}, w=floats(32, 448), b=floats(448), s=np.array([1, 40, 448])),
    "maximum of a product": lambda: made(
        [node("MatMul", ["x", "z"], ["p"]), node("ReduceMax", ["p", "a"], ["y"])],
        {"x": floats(120, 24), "z": floats(24, 64)}, a=AXIS),
    "selection": lambda: made([node("Gather", ["x", "i"], ["y"])], {"x": floats(301, 64), "i": np.array([0, 300, -9])}),
    "halves": lambda: made([node("Exp", ["x"], ["y"])], {"x": floats(701, 33, dtype="float16")}),
    "halves to floats": lambda: made(
        [node("Cast", ["x"], ["h"], to=onnx.TensorProto.FLOAT16), node("MatMul", ["h", "w"], ["p"]),
         node("Cast", ["p"], ["y"], to=onnx.TensorProto.FLOAT)],
        {"x": floats(200, 64)}, w=floats(64, 96, dtype="float16")),
    "bytes": lambda: made([node("Cast", ["x"], ["y"], to=onnx.TensorProto.INT8)], {"x": floats(701, 33) * 9}),
    "read elsewhere too": lambda: made(
        [node("Exp", ["x"], ["y"]), node("ReduceSum", ["y", "a"], ["z"])], {"x": floats(301, 64)}, ("y", "z"), a=AXIS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_large_inputs_and_outputs_are_bound_in_windows(each_device, name: str):
    model, feeds = CASES[name]()
    plan = compile_for(model, feeds, limited(each_device.profile, LIMIT, 1 << 20))
    spans = [span for call in plan.calls for span in call.ranges]
    assert max(span.size for span in spans) <= LIMIT
    assert all(span.offset % 256 == 0 for span in spans)
    assert any(span.size > LIMIT for call in compile_for(model, feeds).calls for span in call.ranges)
    found = run_plan(each_device, plan, model, feeds)
    for mine, expected in zip(found, reference(model, feeds), strict=True):
        assert relative_error(mine, expected) <= (2e-3 if "halves" in name else 2e-5)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: made([node("CumSum", ["x", "a"], ["y"])], {"x": floats(301, 64)}, a=np.array(0)), "binding-size"),
        (lambda: made([node("Exp", ["x"], ["y"])], {"x": floats(5000, 64)}), "binding-size"),
    ],
    ids=["no rule", "beyond a buffer"],
)
def test_the_others_are_refused_by_name(device, build, told):
    model, feeds = build()
    with pytest.raises(DeviceLimitError, match=rf"takes [\d,]+ bytes.*{told} is [\d,]+") as caught:
        compile_for(model, feeds, limited(device.profile, LIMIT, 1 << 20))
    assert caught.value.tensor in ("x", "y")
    assert caught.value.hint is None and "smaller inputs" in str(caught.value)


def test_activations_are_in_buffers_that_a_device_has(each_device):
    """All of them together are larger than a buffer."""
    nodes = [node("MatMul", ["x", f"w{number}"], [f"p{number}"]) for number in range(5)]
    nodes += [node("Softmax", [f"p{number}"], [f"s{number}"], axis=1) for number in range(5)]
    nodes.append(node("Sum", [f"s{number}" for number in range(5)], ["y"]))
    weights = {f"w{number}": floats(48, 60) for number in range(5)}
    model, feeds = made(nodes, {"x": floats(61, 48)}, **weights)
    whole = compile_for(model, feeds, each_device.profile)
    assert requirements(whole)["max-buffer-size"] > LIMIT
    plan = compile_for(model, feeds, limited(each_device.profile, LIMIT))
    assert requirements(plan)["max-buffer-size"] <= LIMIT
    (found,) = run_plan(each_device, plan, model, feeds)
    assert relative_error(found, reference(model, feeds)[0]) <= 2e-5


def test_windows_begin_where_a_binding_may(device):
    profile = limited(device.profile, LIMIT, 1 << 20)
    coarse = replace(profile, limits={**profile.limits, "min-storage-buffer-offset-alignment": 1024})
    model, feeds = CASES["arithmetic"]()
    plan = compile_for(model, feeds, coarse)
    assert all(span.offset % 1024 == 0 for call in plan.calls for span in call.ranges)


def declared(
    *nodes: onnx.NodeProto,
    dims: dict[str, Sequence[Any]],
    dtype: str = "float32",
    outputs: Sequence[str] = ("y",),
    **constants: np.ndarray,
) -> Callable[[int], Model]:
    """A model of inputs with the named dimensions in ``dims``, and for a size feeds: ``m`` is a half of ``n``, and
    ``i`` are indices of rows.
    """

    def build(size: int) -> Model:
        shapes = {name: [{"n": size, "m": size // 2}.get(dim, dim) for dim in shape] for name, shape in dims.items()}
        feeds = {name: floats(*shape, dtype=dtype) for name, shape in shapes.items() if name != "i"}
        if "i" in dims:
            feeds["i"] = np.resize(np.array([0, size - 1, -1, -size, size // 2, size // 3]), shapes["i"])
        return make_model(nodes, feeds, outputs, dims=dims, constants=constants), feeds

    return build


#: Models of inputs with declared sizes, the largest of ``n``, and the rows of a window of the first input
DECLARED = {
    "rows": (declared(node("Mul", ["x", "x"], ["p"]), node("Sin", ["p"], ["y"]), dims={"x": ("n", 64)}), 400, 64),
    "odd rows": (declared(node("Exp", ["x"], ["y"]), dims={"x": ("n", 17)}), 1401, 192),
    "columns": (declared(node("Exp", ["x"], ["y"]), dims={"x": (300, "n")}), 60, 30),
    "rows and columns": (declared(node("Exp", ["x"], ["y"]), dims={"x": ("n", "m")}), 100, 64),
    "batch of one": (declared(node("Neg", ["x"], ["y"]), dims={"x": (1, 1, "n", 33)}), 400, 64),
    "sum of columns": (declared(node("ReduceSum", ["x", "a"], ["y"]), dims={"x": ("n", 17)}, a=AXIS - 1), 700, 192),
    "softmax": (declared(node("Softmax", ["x"], ["y"], axis=1), dims={"x": ("n", 64)}), 400, 64),
    "two softmax": (
        declared(node("Softmax", ["x"], ["p"], axis=1), node("Softmax", ["p"], ["y"], axis=0), dims={"x": ("n", 64)}),
        400, 64),
    "reshaped": (
        declared(node("Exp", ["x"], ["e"]), node("Reshape", ["e", "s"], ["y"]), dims={"x": ("n", 4, 16)},
                 s=np.array([-1, 16])), 400, 64),
    "product": (
        declared(node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"]), dims={"x": ("n", 32)},
                 w=floats(32, 100), b=floats(100)), 300, 32),
    "product of terms": (
        declared(node("MatMul", ["x", "z"], ["y"]), dims={"x": (5, "n"), "z": ("n", 33)}), 400, 64),
    "block": (
        declared(node("LayerNormalization", ["x", "g", "g"], ["p"]), node("MatMul", ["p", "w"], ["q"]),
                 node("Gelu", ["q"], ["r"]), node("Add", ["r", "x"], ["y"]), dims={"x": (1, "n", 64)},
                 w=floats(64, 64), g=floats(64)), 300, 64),
    "rows in front": (
        declared(node("Concat", ["x", "z"], ["y"], axis=0), dims={"x": ("n", 64), "z": (9, 64)}), 400, 64),
    "rows behind": (
        declared(node("Concat", ["z", "x"], ["y"], axis=0), dims={"x": ("n", 64), "z": (9, 64)}), 400, 63),
    "odd rows behind": (
        declared(node("Concat", ["z", "x"], ["p"], axis=0), node("Exp", ["p"], ["y"]), dims={"x": ("n", 17)},
                 z=floats(9, 17)), 1401, 192),
    "rows between": (
        declared(node("Concat", ["c", "x", "z"], ["y"], axis=0), dims={"x": ("n", 64), "z": (9, 64)},
                 c=floats(5, 64)), 390, 58),
    "rows of both": (
        declared(node("Concat", ["x", "z"], ["y"], axis=0), dims={"x": ("n", 64), "z": ("m", 64)}), 340, 64),
    "computed rows": (
        declared(node("Softmax", ["x"], ["p"], axis=1), node("Concat", ["p", "z"], ["q"], axis=0),
                 node("Exp", ["q"], ["y"]), dims={"x": ("n", 64), "z": ("m", 64)}), 300, 64),
    "a token before the others": (
        declared(node("Concat", ["t", "x"], ["p"], axis=1), node("LayerNormalization", ["p", "g"], ["y"]),
                 dims={"x": (1, "n", 64)}, t=floats(1, 1, 64), g=floats(64)), 400, 63),
    "outputs that are read": (
        declared(node("Exp", ["x"], ["y"]), node("ReduceSum", ["y", "a"], ["s"], keepdims=0),
                 node("Softmax", ["y"], ["z"], axis=1), node("Sub", ["y", "one"], ["d"]), node("Sign", ["d"], ["g"]),
                 node("Cast", ["g"], ["b"], to=onnx.TensorProto.INT8),
                 dims={"x": ("n", 64)}, outputs=("y", "s", "z", "b"), a=AXIS, one=floats(1) * 0 + 1), 400, 64),
    "halves": (declared(node("Exp", ["x"], ["y"]), dims={"x": ("n", 33)}, dtype="float16"), 700, 128),
    "bytes": (
        declared(node("Cast", ["x"], ["y"], to=onnx.TensorProto.INT8), dims={"x": ("n", 48)}), 501, 64),
}  # fmt: skip
QUICK = frozenset({"rows", "columns", "sum of columns", "product"})


def spans(plan: Plan, size: int) -> list[tuple[int, int]]:
    """Offset and bytes of what calls with work to do bind of inputs and outputs; ``m`` is a half of ``n``."""
    sizes = {symbol.name: size if symbol.name == "n" else size // 2 for symbol in plan.symbols}
    busy = [call for call in plan.calls if all(evaluate(count, sizes) for count in call.grid)]
    ranges = [each for call in busy for each in call.ranges if each.buffer.startswith(("input:", "output:"))]
    return [(evaluate(each.offset, sizes), evaluate(each.size, sizes)) for each in ranges]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in DECLARED]
)
def test_the_largest_declared_size_decides_the_windows(each_device, name: str):
    """Sizes grow and shrink, to none, so that windows are full, partly full and empty in turns."""
    build, high, rows = DECLARED[name]
    model, _ = build(high)
    least = 0 if name != "rows and columns" else 2
    dynamic = {symbol: (least // (1 + (symbol == "m")), high // (1 + (symbol == "m"))) for symbol in "nm"}
    sizes = [rows + 9, rows - 1, high, least, rows, rows + 1, 2 * rows, 2 * rows + 1, least + 1, high - 1, rows + 9]
    feeds = [build(size)[1] for size in (min(size, high) for size in sizes)]
    used = {dim: dynamic[dim] for port in model.graph.input for dim in dims_of(port)}
    plan = compile_for(model, feeds[0], limited(each_device.profile, LIMIT, 1 << 17), dynamic=used)
    bound = [span for size in sizes for span in spans(plan, min(size, high))]
    assert max(size for _, size in bound) <= LIMIT
    assert all(offset % 256 == 0 for offset, _ in bound)
    assert any(size > LIMIT for _, size in spans(compile_for(model, feeds[0], dynamic=used), high))
    for fed, results in zip(feeds, run_plan(each_device, plan, model, feeds), strict=True):
        for found, expected in zip(results, reference(model, fed), strict=True):
            assert found.shape == expected.shape
            assert not found.size or relative_error(found, expected) <= (2e-3 if name == "halves" else 2e-5)


#: Selections of rows of what is bound in windows
SELECTIONS = {
    "of an input": declared(node("Gather", ["x", "i"], ["y"]), dims={"x": ("n", 64), "i": (2, 3)}),
    "of a size that is declared": declared(node("Gather", ["x", "i"], ["y"]), dims={"x": ("n", 17), "i": ("m",)}),
    "of what is computed": declared(
        node("Softmax", ["x"], ["p"], axis=1), node("Gather", ["p", "i"], ["y"]), dims={"x": ("n", 64), "i": (5,)}),
    "of an inner axis": declared(node("Gather", ["x", "i"], ["y"], axis=1), dims={"x": (1, "n", 64), "i": (4,)}),
    "of a fixed row": declared(node("Gather", ["x", "c"], ["y"]), dims={"x": ("n", 64)}, c=np.array([-1, 0])),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "of an input")) for name in SELECTIONS]
)
def test_rows_are_selected_of_windows(each_device, name: str):
    build, high = SELECTIONS[name], 400 if "declared" not in name else 700
    sizes = [73, 1, 2, 64, 65, high - 1, high, 129, 200]
    model, _ = build(high)
    feeds = [build(size)[1] for size in sizes]
    used = {dim: (0 if dim == "m" else 1, high // (1 + (dim == "m"))) for port in model.graph.input
            for dim in dims_of(port)}  # fmt: skip
    plan = compile_for(model, feeds[0], limited(each_device.profile, LIMIT, 1 << 17), dynamic=used)
    assert max(size for each in sizes for _, size in spans(plan, each)) <= LIMIT
    for fed, (found,) in zip(feeds, run_plan(each_device, plan, model, feeds), strict=True):
        (expected,) = reference(model, fed)
        assert found.shape == expected.shape
        assert not found.size or relative_error(found, expected) <= 2e-5


def test_indices_out_of_range_are_clamped_as_without_windows(device):
    build = SELECTIONS["of an input"]
    model, fed = build(100)
    fed["i"] = np.array([[100, 5000, -101], [-5000, 2**40, 63]])
    profiles = (device.profile, limited(device.profile, LIMIT, 1 << 17))
    plans = [compile_for(model, fed, profile, dynamic={"n": (1, 400)}) for profile in profiles]
    whole, parts = (run_plan(device, plan, model, fed)[0] for plan in plans)
    np.testing.assert_array_equal(parts, whole)


def dims_of(port: onnx.ValueInfoProto) -> list[str]:
    """The named dimensions of an input."""
    return [dim.dim_param for dim in port.type.tensor_type.shape.dim if dim.dim_param]


def test_caches_that_a_product_reads_stay_whole(device):
    """Of windows it would gather them; a cache of most runs fits a binding."""
    dims = {"x": ("n", 64), "k": ("n", 64), "q": (64, 3)}
    build = declared(node("Add", ["x", "k"], ["y"]), node("MatMul", ["y", "q"], ["s"]), dims=dims, outputs=("y", "s"))
    model, feeds = build(20)
    plan = compile_for(model, feeds, limited(device.profile, LIMIT, 1 << 17), dynamic={"n": (1, 400)})
    assert {each.offset for call in plan.calls for each in call.ranges if each.buffer == "output:y"} == {0}
    for found, expected in zip(run_plan(device, plan, model, feeds), reference(model, feeds), strict=True):
        assert relative_error(found, expected) <= 2e-5


def test_attention_keeps_caches_of_declared_size_whole(device):
    """Scores of windows would be stored; a cache of most runs fits a binding."""
    dims = {"q": (1, 8, 1, 64), "k": (1, 8, 64, "n"), "v": (1, 8, "n", 64)}
    build = declared(
        node("MatMul", ["q", "k"], ["s"]), node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "v"], ["y"]), dims=dims
    )
    model, feeds = build(20)
    plans = [
        compile_for(model, feeds, limited(device.profile, limit, 1 << 20), dynamic={"n": (1, 200)})
        for limit in (1 << 17, 1 << 20)
    ]
    assert len(plans[0].calls) == len(plans[1].calls) == 1
