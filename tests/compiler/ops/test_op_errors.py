"""Operands and attributes that do not fit are refused with the node and the reason.  Covers: compiler/ops/checks."""

from __future__ import annotations

import dataclasses

import pytest
from onnx import helper, parser
from onnx.defs import onnx_opset_version

import shaderloom.compiler.ops  # noqa: F401  (fills the registry)
from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ops.checks import FLOATS
from shaderloom.compiler.ops.registry import NoAttributes, OpDef, registry
from shaderloom.runtime.plan.errors import ModelError, ShaderloomError, ShapeError, UnsupportedError

from ...op_cases import cases_of

SHAPE, SUPPORT = ShapeError, UnsupportedError

REFUSED: dict[str, tuple[str, str, type[ShaderloomError], str]] = {
    "broadcast": ("float[2, 3] a, float[4] b", "Add(a, b)", SHAPE, "(2, 3) and (4) do not broadcast"),
    "types": ("float[2] a, int64[2] b", "Add(a, b)", SHAPE, "operands of types float32 and int64"),
    "float of bool": ("bool[2] a", "Sqrt(a)", SUPPORT, "does not support element type bool"),
    "double": ("double[2] a", "Sqrt(a)", SUPPORT, "does not support element type float64"),
    "clip": ("float[2] a, float[2] b", "Clip(a, b)", SHAPE, "bounds must be scalars"),
    "prelu": ("float[2] a, float[3, 2] b", "PRelu(a, b)", SHAPE, "does not broadcast to the input"),
    "shift": ("uint8[2] a, uint8[2] b", 'BitShift<direction = "UP">(a, b)', SUPPORT, "supported are LEFT, RIGHT"),
    "matmul": ("float[2, 3] a, float[4, 5] b", "MatMul(a, b)", SHAPE, "the inner sizes differ"),
    "matmul scalar": ("float a, float[4, 5] b", "MatMul(a, b)", SHAPE, "rank at least 1"),
    "gemm rank": ("float[2, 3, 4] a, float[4, 5] b", "Gemm(a, b)", SHAPE, "matrices"),
    "gemm c": ("float[2, 3] a, float[3, 5] b, float[7, 1, 1] c", "Gemm(a, b, c)", SHAPE, "does not broadcast"),
    "reduce axis": ("float[2, 3] a", "y0 = Constant<value_ints = [2]>() y = ReduceSum(a, y0)", SHAPE, "axis 2"),
    "axis twice": ("float[2, 3] a", "y0 = Constant<value_ints = [1, -1]>() y = ReduceSum(a, y0)", SHAPE, "twice"),
    "computed axes": ("float[2, 3] a, int64[1] b", "ReduceSum(a, b)", SHAPE, "must be known at compile time"),
    "empty argmax": ("float[n] a", "ArgMax(a)", SHAPE, "no elements"),
    "softmax axis": ("float[2, 3] a", "Softmax<axis = 2>(a)", SHAPE, "axis 2 is out of range"),
    "channels": ("float[1, 3, 5, 5] a, float[4, 2, 3, 3] b", "Conv(a, b)", SHAPE, "3 channels, 1 groups"),
    "group": ("float[1, 4, 5, 5] a, float[3, 2, 3, 3] b", "Conv<group = 2>(a, b)", SHAPE, "2 groups"),
    "kernel": ("float[1, 3, 2, 9] a, float[4, 3, 3, 3] b", "Conv(a, b)", SHAPE, "a window of 3 is larger than 2"),
    "kernel_shape": (
        "float[1, 3, 5, 5] a, float[4, 3, 3, 3] b",
        "Conv<kernel_shape = [2, 2]>(a, b)",
        SHAPE,
        "kernel_shape",
    ),
    "auto_pad": (
        "float[1, 3, 5, 5] a, float[4, 3, 3, 3] b",
        'Conv<auto_pad = "MOST">(a, b)',
        SUPPORT,
        "'auto_pad' = 'MOST'",
    ),
    "pads": ("float[1, 3, 5, 5] a, float[4, 3, 3, 3] b", "Conv<pads = [1, 1]>(a, b)", SHAPE, "do not fit 2 axes"),
    "stride": ("float[1, 3, 5] a", "MaxPool<kernel_shape = [2], strides = [0]>(a)", SHAPE, "must be positive"),
    "exponent": ("float[1, 3, 5] a", "LpPool<kernel_shape = [2], p = 0>(a)", SHAPE, "p must be positive"),
    "exponent of all": ("float[1, 3, 5] a", "GlobalLpPool<p = 0>(a)", SHAPE, "p must be positive"),
    "pool rank": ("float[3, 5] a", "MaxPool<kernel_shape = [2]>(a)", SHAPE, "needs spatial axes"),
    "bias": ("float[1, 3, 5] a, float[4, 3, 1] b, float[3] c", "Conv(a, b, c)", SHAPE, "one number a channel"),
    "batch": (
        "float[1, 3, 5] a, float[3] s, float[3] m, float[4] v",
        "BatchNormalization(a, s, s, m, v)",
        SHAPE,
        "input 4 must have one number for each of 3 channels",
    ),
    "groups": (
        "float[1, 5, 5] a, float[5] s",
        "GroupNormalization<num_groups = 2>(a, s, s)",
        SHAPE,
        "5 channels do not divide into 2 groups",
    ),
    "batch of values": (
        "float[2, 2, 3, 4] q, float[2, 2, 5, 4] k, float[1, 2, 5, 4] v",
        "Attention(q, k, v)",
        SHAPE,
        "(2, 2, 5, 4) and (1, 2, 5, 4) are no keys and values of 2 sequences",
    ),
    "number of values": (
        "float[2, 2, 3, 4] q, float[2, 2, 5, 4] k, float[2, 2, 6, 4] v",
        "Attention(q, k, v)",
        SHAPE,
        "(2, 2, 5, 4) and (2, 2, 6, 4) are no keys and values of 2 sequences",
    ),
    "no heads of keys": (
        "float[2, 2, 3, 4] q, float[2, n, 5, 4] k, float[2, n, 5, 4] v",
        "Attention(q, k, v)",
        SHAPE,
        "no heads of keys",
    ),
    "past values": (
        "float[2, 2, 3, 4] q, float[2, 2, 5, 4] k, float[2, 2, 1, 4] pk, float[2, 2, 2, 4] pv",
        "Attention(q, k, k, , pk, pv)",
        SHAPE,
        "a past of shape (2, 2, 2, 4) for values, not (2, 2, 1, 4)",
    ),
    "cast": ("float[2] a", "Cast<to = 27>(a)", SUPPORT, "element type 27"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    inputs, body, kind, reason = REFUSED[name]
    body = body if "y = " in body else f"y = {body}"
    text = f'<ir_version: 10, opset_import: ["" : 23]> g ({inputs}) => (float y) {{ {body} }}'
    with pytest.raises(kind) as caught:
        _specialise(text)
    assert reason in str(caught.value)
    assert caught.value.origin is not None


def _specialise(text: str) -> None:
    """Import and specialise; a named dimension is 0."""
    model = load_model(parser.parse_model(text))
    shapes = {port.name: [dim if isinstance(dim, int) else 0 for dim in port.dims or ()] for port in model.inputs}
    specialise(model, bind_shapes(model, shapes).shapes)


FLOATING = [
    definition
    for definition in registry.all()
    if not definition.domain and definition.element is not None and definition.types == (FLOATS,)
]


@pytest.mark.parametrize("definition", FLOATING, ids=lambda definition: definition.name)
def test_a_missing_type_names_the_supported_ones(definition: OpDef):
    case = cases_of(definition)[0]
    operands = ", ".join(f"int32[3] x{position}" for position in range(len(case.inputs)))
    names = ", ".join(f"x{position}" for position in range(len(case.inputs)))
    with pytest.raises(UnsupportedError) as caught:
        _specialise(
            f'<ir_version: 10, opset_import: ["" : {onnx_opset_version()}]> g ({operands}) => (float y) '
            f"{{ [at] y = {definition.name}({names}) }}"
        )
    text = str(caught.value)
    assert f"at {definition.name} 'at'" in text and "int32 for input 0" in text
    assert "supported are bfloat16, float16, float32" in text


WITH_ATTRIBUTES = [
    definition
    for definition in registry.all()
    if not definition.domain and definition.attributes is not NoAttributes and len(cases_of(definition)[0].inputs) == 1
]


@pytest.mark.parametrize("definition", WITH_ATTRIBUTES, ids=lambda definition: definition.name)
def test_a_missing_attribute_names_the_nearest(definition: OpDef):
    """The name of an attribute with a letter more."""
    case = cases_of(definition)[0]
    name = dataclasses.fields(definition.attributes)[0].name
    node = helper.make_node(definition.name, ["x"], ["y"], "at", **{**case.attributes, f"{name}z": 1})
    ports = [helper.make_tensor_value_info(each, 1, [3]) for each in "xy"]
    opset = helper.make_opsetid("", case.opset or onnx_opset_version())
    model = helper.make_model(
        helper.make_graph([node], "g", ports[:1], ports[1:]), opset_imports=[opset], ir_version=10
    )
    with pytest.raises(UnsupportedError) as caught:
        load_model(model)
    text = str(caught.value)
    assert f"at {definition.name} 'at'" in text and f"attribute '{name}z' of {definition.name}" in text
    assert f"the nearest supported attribute is {name}" in text


@pytest.mark.parametrize(("wrong", "right"), [("Sofmax", "Softmax"), ("LayerNormalisation", "LayerNormalization")])
def test_a_missing_operator_names_the_nearest(wrong: str, right: str):
    with pytest.raises(UnsupportedError) as caught:
        _specialise(
            '<ir_version: 10, opset_import: ["" : 21, "own" : 3]> g (float[3] x) => (float y) '
            f"{{ [at] y = own.{wrong}(x) }}"
        )
    text = str(caught.value)
    assert f"at {wrong} 'at'" in text and f"'own.{wrong}' is not supported (opset 3)" in text
    assert f"the nearest supported operator is {right}" in text


# -- what every refusal says -----------------------------------------------------------------------------------------

#: what is wrong -> opset, inputs, node, all that the error says
COMPLETE: dict[str, tuple[int, str, str, tuple[str, ...]]] = {
    "unknown operator": (
        21,
        "float[3] x",
        "Sofmax(x)",
        ("ai.onnx opset 21", "operator 'Sofmax'", "the nearest supported operator is Softmax of ai.onnx"),
    ),
    "operator of another domain": (
        21,
        "float[3] x",
        "BiasGelu(x, x)",
        ("ai.onnx opset 21", "operator 'BiasGelu'", "BiasGelu of com.microsoft"),
    ),
    "misspelt operator of a domain": (
        21,
        "float[3] x",
        "com.microsoft.BiasGelo(x, x)",
        ("com.microsoft opset 1", "operator 'com.microsoft.BiasGelo'", "BiasGelu of com.microsoft"),
    ),
    "unknown domain": (
        21,
        "float[3] x",
        "own.Zzz(x)",
        ("own opset 3", "operator 'own.Zzz'", "supported domains are ai.onnx, ai.onnx.ml, com.microsoft"),
    ),
    "operator of a newer opset": (
        17,
        "float[3] x",
        "Gelu(x)",
        ("ai.onnx opset 17", "'Gelu' is not part of opset 17", "from opset 20 on", "version_converter"),
    ),
    "misspelt attribute": (
        21,
        "float[3] x",
        "Softmax<axes = 1>(x)",
        ("ai.onnx opset 21", "attribute 'axes' of Softmax", "1 was given", "the nearest supported attribute is axis"),
    ),
    "value of an attribute": (
        21,
        "float[3] x, int64[2] pads",
        'Pad<mode = "refelct">(x, pads)',
        ("ai.onnx opset 21", "attribute 'mode' = 'refelct'", "constant, edge, reflect, wrap", "the nearest is reflect"),
    ),
    "type of an attribute": (
        21,
        "float[3] x",
        'Softmax<axis = "last">(x)',
        ("ai.onnx opset 21", "attribute 'axis' of Softmax must be int, not str", "'last'"),
    ),
    "type of an operand": (
        21,
        "double[3] x",
        "Sqrt(x)",
        ("ai.onnx opset 21", "tensor 'x'", "element type float64 for input 0", "float16, float32", "a Cast to float32"),
    ),
    "type that no device holds": (
        21,
        "float[3] x",
        "Cast<to = 27>(x)",
        ("ai.onnx opset 21", "element type 27 is not supported (float6e2m3)", "supported are bfloat16"),
    ),
    "missing input": (
        21,
        "float[1, 3, 5] x",
        'Conv(x, "", x)',
        ("ai.onnx opset 21", "input 1 of Conv is missing (W)", "only optional inputs may be left out"),
    ),
}


@pytest.mark.parametrize("name", COMPLETE)
def test_a_refusal_names_all_that_is_at_fault(name: str):
    """Kind, node, operator, domain, opset, the part at fault with its value, and the nearest supported form."""
    opset, inputs, body, parts = COMPLETE[name]
    with pytest.raises((UnsupportedError, ModelError)) as caught:
        _specialise(
            f'<ir_version: 10, opset_import: ["" : {opset}, "own" : 3, "com.microsoft" : 1]> '
            f"g ({inputs}) => (float y) {{ [at] y = {body} }}"
        )
    error, text = caught.value, str(caught.value)
    op = body.partition("(")[0].partition("<")[0].rpartition(".")[2]
    assert text.startswith(f"{error.kind} at {op} 'at' (main node 0; ")
    assert [part for part in parts if part not in text] == []
    if isinstance(error, UnsupportedError):
        assert error.fault is not None and error.fault in text


def test_supported_values_are_ordered_by_likeness():
    error = UnsupportedError.of_attribute("Pad", "mode", "Reflected", ("constant", "edge", "reflect", "wrap"))
    assert error.supported[0] == "reflect" and error.fault == "attribute 'mode' = 'Reflected'"
    assert UnsupportedError.of_type("Sqrt", 0, "uint32", ("float32", "int64")).supported[0] == "int64"
    assert "nearest" not in str(UnsupportedError.of_attribute("Resize", "mode", "area", ("cubic", "linear")))
