"""Small files that ask for much, or for what nothing can have: errors of the project's own family, in little time.

Covers: compiler/frontend, compiler/options.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import shaderloom
from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ops.registry import registry
from shaderloom.compiler.options import DEFAULT_LIMITS, Limits
from shaderloom.runtime.plan.errors import (
    InputError,
    InternalError,
    LimitError,
    ModelError,
    ShaderloomError,
    UnsupportedError,
    printable,
)

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
HUGE = 2**63 - 1


def _model(nodes, constants=(), *, opset=18, inputs=(X,), outputs=(Y,), functions=(), domain=None) -> bytes:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(constants))
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    made = helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8)
    return made.SerializeToString()


def _specialise(model: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
    imported = load_model(model, max_nodes=limits.nodes)
    shapes = {port.name: tuple(dim for dim in port.dims if isinstance(dim, int)) for port in imported.inputs}
    specialise(imported, bind_shapes(imported, shapes).shapes, limits)


def _tensor(kind: int, dims: list[int], data: bytes) -> TensorProto:
    return TensorProto(name="w", data_type=kind, dims=dims, raw_data=data)


def _ones(count: int, number: int = 1) -> TensorProto:
    return helper.make_tensor("w", TensorProto.INT64, [count], np.full(count, number, np.int64).tobytes(), raw=True)


@pytest.mark.parametrize(
    ("op", "opset", "name"),
    [
        ("ReduceSum", 11, "axes"),
        ("Squeeze", 11, "axes"),
        ("Unsqueeze", 11, "axes"),
        ("TopK", 9, "k"),
        ("Split", 11, "split"),
        ("Pad", 10, "pads"),
        ("Upsample", 7, "scales"),
        ("Clip", 6, "min"),
        ("Slice", 9, "starts"),
    ],
)
@pytest.mark.parametrize("value", ["0", ["0"], "abc"])
def test_kinds_of_attributes(op: str, opset: int, name: str, value: object) -> None:
    """Adapters of older versions turn attributes into inputs: a text must not pass for a number."""
    node = helper.make_node(op, ["x"], ["y"])
    required = {"starts": {"ends": [1]}}.get(name, {})
    node.attribute.extend(helper.make_attribute(key, each) for key, each in {name: value, **required}.items())
    with pytest.raises(UnsupportedError, match=f"attribute '{name}' of {op} must be"):
        _specialise(_model([node], opset=opset))


@pytest.mark.parametrize(
    ("dims", "data"), [([1] * 65, b"\0" * 4), ([HUGE, 0], b""), ([HUGE, HUGE], b""), ([2**31, 2**31, 0], b"")]
)
def test_constants_that_nothing_holds(dims: list[int], data: bytes) -> None:
    constant = _tensor(TensorProto.FLOAT, dims, data)
    with pytest.raises(LimitError, match=r"there may be 64|in all"):
        _specialise(_model([helper.make_node("Add", ["x", "w"], ["y"])], [constant]))
    output = helper.make_tensor_value_info("w", TensorProto.FLOAT, None)
    with pytest.raises(LimitError, match=r"there may be 64|in all"):
        _specialise(_model([helper.make_node("Relu", ["x"], ["y"])], [constant], outputs=[output]))


def test_declared_shapes_that_nothing_has() -> None:
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    deep = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1] * 65)
    with pytest.raises(LimitError, match="65 axes"):
        _specialise(_model(relu, inputs=[deep]))
    with pytest.raises(LimitError, match="65 axes"):
        _specialise(_model(relu, outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, [1] * 65)]))
    empty = helper.make_tensor_value_info("x", TensorProto.FLOAT, [HUGE, 0])
    with pytest.raises(InputError, match="in all"):
        _specialise(_model(relu, inputs=[empty]))


@pytest.mark.parametrize("code", [33, 65, -1])
@pytest.mark.parametrize("end", ["input", "output"])
def test_declared_types_that_nothing_has(end: str, code: int) -> None:
    model = onnx.load_from_string(_model([helper.make_node("Relu", ["x"], ["y"])]))
    getattr(model.graph, end)[0].type.tensor_type.elem_type = code
    with pytest.raises(UnsupportedError, match=f"element type {code} is not supported"):
        shaderloom.InferenceSession(model.SerializeToString(), cache=False)


@pytest.mark.parametrize(
    "op", ["Reshape", "Expand", "Tile", "Unsqueeze", "ReduceSum", "Pad", "Split", "ConstantOfShape"]
)
@pytest.mark.parametrize("count", [65, 1 << 20])
def test_operands_with_many_elements(op: str, count: int) -> None:
    inputs = ["w"] if op == "ConstantOfShape" else ["x", "w"]
    with pytest.raises(ShaderloomError) as caught:
        _specialise(_model([helper.make_node(op, inputs, ["y"])], [_ones(count)]))
    assert not isinstance(caught.value, InternalError)
    assert len(str(caught.value)) < 5000


@pytest.mark.parametrize("scale", [float("inf"), 3.4e38, float("nan"), -1.0, 0.0])
def test_scales_that_give_no_size(scale: float) -> None:
    scales = helper.make_tensor("w", TensorProto.FLOAT, [2], [scale, 1.0])
    for node, opset in (
        (helper.make_node("Resize", ["x", "", "w"], ["y"], mode="linear"), 18),
        (helper.make_node("Upsample", ["x", "w"], ["y"]), 9),
    ):
        if scale == 0.0 and opset == 9:
            continue  # an empty result
        with pytest.raises(ShaderloomError) as caught:
            _specialise(_model([node], [scales], opset=opset))
        assert not isinstance(caught.value, InternalError)


@pytest.mark.parametrize("limit", [float("inf"), float("nan")])
def test_ranges_without_a_length(limit: float) -> None:
    names = {"start": 0.0, "limit": limit, "delta": 1.0}
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [], [number]) for name, number in names.items()]
    with pytest.raises(ShaderloomError, match="has no length"):
        _specialise(_model([helper.make_node("Range", list(names), ["y"])], constants))


MICROSOFT = sorted(definition.name for definition in registry.all() if definition.domain == "com.microsoft")
#: Those that one operand is enough for
ONE_INPUT = {"BiasGelu", "FastGelu", "Gelu", "QuickGelu", "Trilu"}


@pytest.mark.parametrize("inputs", [[], ["x"], ["", "", "x"]], ids=["none", "one", "third"])
@pytest.mark.parametrize("op", MICROSOFT)
def test_operators_that_onnx_does_not_describe(op: str, inputs: list[str]) -> None:
    node = helper.make_node(op, inputs, ["y"], domain="com.microsoft")
    model = _model([node], domain="com.microsoft")
    if inputs == ["x"] and op in ONE_INPUT:
        _specialise(model)
        return
    with pytest.raises(ShaderloomError) as caught:
        _specialise(model)
    assert not isinstance(caught.value, InternalError)


@pytest.mark.parametrize("opset", [8, 18])
@pytest.mark.parametrize("scanned", [-HUGE, -1, 0, 3, 2**40, HUGE])
def test_a_scan_of_more_sequences_than_it_has(scanned: int, opset: int) -> None:
    state, row = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "se")
    result = helper.make_tensor_value_info("t", TensorProto.FLOAT, [3])
    body = helper.make_graph([helper.make_node("Add", ["s", "e"], ["t"])], "b", [state, row], [result])
    operands = ["", "z", "x"] if opset == 8 else ["z", "x"]
    scan = helper.make_node("Scan", operands, ["y"], body=body, num_scan_inputs=scanned)
    start = helper.make_tensor_value_info("z", TensorProto.FLOAT, [3])
    with pytest.raises(ModelError, match=r"num_scan_inputs of Scan is -?\d+; it has 2 states") as raised:
        load_model(_model([scan], opset=opset, inputs=(start, X)))
    assert raised.value.origin is not None


def test_a_loop_whose_body_has_too_few_outputs() -> None:
    ports = [("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []), ("a", TensorProto.FLOAT, [2, 3])]
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["going"])],
        "body",
        [helper.make_tensor_value_info(*port) for port in ports],
        [helper.make_tensor_value_info("going", TensorProto.BOOL, [])],
    )
    count = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    model = _model([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], inputs=[X, count])
    with shaderloom.InferenceSession(model, cache=False) as session:
        for count in (0, 2):
            with pytest.raises(ModelError, match="outputs"):
                session.run(None, {"x": np.ones((2, 3), np.float32), "n": np.array(count, np.int64)})


# -- much from little --------------------------------------------------------------------------------------------------


def _functions(levels: int) -> bytes:
    """Functions that call the one below twice."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "F0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets)]
    for level in range(1, levels):
        below = f"F{level - 1}"
        nodes = [helper.make_node(below, [a], [b], domain="f") for a, b in (("a", "t"), ("t", "b"))]
        functions.append(helper.make_function("f", f"F{level}", ["a"], ["b"], nodes, opsets))
    call = helper.make_node(f"F{levels - 1}", ["x"], ["y"], domain="f")
    return _model([call], functions=functions, domain="f")


def _loops(count: int, depth: int, level: int = 0) -> onnx.NodeProto:
    """Loops inside each other."""
    value, result = (f"a{level - 1}" if level else "x"), f"r{level}"
    inner = (
        _loops(count, depth, level + 1)
        if level + 1 < depth
        else helper.make_node("Add", [f"a{level}", f"a{level}"], [f"r{level + 1}"])
    )
    ports = [(f"i{level}", TensorProto.INT64, []), (f"c{level}", TensorProto.BOOL, [])]
    body = helper.make_graph(
        [helper.make_node("Identity", [f"c{level}"], [f"g{level}"]), inner],
        f"body{level}",
        [helper.make_tensor_value_info(*port) for port in (*ports, (f"a{level}", TensorProto.FLOAT, [2, 3]))],
        [
            helper.make_tensor_value_info(f"g{level}", TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"r{level + 1}", TensorProto.FLOAT, [2, 3]),
        ],
    )
    return helper.make_node("Loop", ["n", "", value], [result if level else "y"], body=body)


def test_functions_that_double() -> None:
    with pytest.raises(LimitError, match=r"549,755,813,888 nodes.*caps.nodes"):
        _specialise(_functions(40))
    _specialise(_functions(6), Limits(nodes=32))
    with pytest.raises(LimitError, match="the cap is 31"):
        _specialise(_functions(6), Limits(nodes=31))


def test_loops_in_loops() -> None:
    """The cap counts the product of their trip counts."""

    def nested(count: int) -> bytes:
        return _model([_loops(count, 3)], [helper.make_tensor("n", TensorProto.INT64, [], [count])])

    _specialise(nested(10))
    with pytest.raises(LimitError, match=r"at most 1,024 are written out.*loop_iterations"):
        _specialise(nested(11))
    with pytest.raises(LimitError, match="more than 500 nodes"):
        _specialise(nested(10), Limits(nodes=500))


def test_names_of_a_megabyte() -> None:
    """The nearest names are looked for in its beginning, and the error has both of its ends."""
    for model in (
        _model([helper.make_node("R" * (1 << 20), ["x"], ["y"])]),
        _model([helper.make_node("Relu", ["x"], ["y"], **{"a" * (1 << 20): 1})]),
    ):
        with pytest.raises(UnsupportedError) as caught:
            _specialise(model)
        assert len(str(caught.value)) < 5000
    assert printable("a\nb") == "a b"


def test_what_is_no_path() -> None:
    for path in ("a" * 300, "a/" * 3000):
        with pytest.raises(ModelError, match="File name too long"):
            shaderloom.InferenceSession(path)
        with pytest.raises(ModelError, match="File name too long"):
            load_model(path)
    with pytest.raises(InputError, match="a bundle is a path, not int"):
        shaderloom.load_bundle(5)  # type: ignore[arg-type]
