"""Proofs that rows of a batch are independent: what is proven holds, and what mixes rows is refused by name.

Covers: compiler/batching.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import onnx.parser
import pytest

from shaderloom.compiler.batching.row_proof import prove_rows
from shaderloom.compiler.frontend import load_model
from shaderloom.runtime.plan.batch_ports import BatchPorts
from shaderloom.runtime.plan.errors import ShaderloomError, UnsupportedError

from ...support.cases import OperatorCase, all_cases, difference, run_onnxruntime

MOST = 8


def prove(body: str, inputs: str = "float[N, 4, 6] x", outputs: str = "float[N, k] y", **shapes: tuple[int, ...]):
    """Prove the rows of axis 0 of all inputs of a model, but of ``shared``."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g ({inputs}) => ({outputs}) {{ {body} }}'
    )
    shapes = shapes or {"x": (1, 4, 6)}
    axes = {name: 0 for name in shapes if name != "shared"}
    return prove_rows(load_model(model), shapes, axes, MOST)


INDEPENDENT = {
    "elementwise": "y = Relu(x)",
    "flattened": "y = Flatten<axis = 1>(x)",
    "rows inside of an axis": """
        s = Constant<value_ints = [-1, 6]>() f = Reshape(x, s) w = Constant<value = float[6, 2] {1, 2, 3, 4, 5, 6, 7, 8,
        9, 10, 11, 12}>() p = MatMul(f, w) t = Constant<value_ints = [-1, 4, 2]>() y = Reshape(p, t)""",
    "moved to another axis": """
        t = Transpose<perm = [1, 0, 2]>(x) a = Constant<value_ints = [2]>() m = ReduceMean(t, a) y = Transpose<perm =
        [1, 0, 2]>(m)""",
    "attention": "k = Transpose<perm = [0, 2, 1]>(x) s = MatMul(x, k) p = Softmax<axis = -1>(s) y = MatMul(p, x)",
    "sequence first": """
        t = Transpose<perm = [1, 0, 2]>(x) s = Constant<value_ints = [-1, 6]>() f = Reshape(t, s) r = Tanh(f)
        b = Shape<start = 0, end = 1>(x) four = Constant<value_ints = [4]>() six = Constant<value_ints = [6]>()
        back = Concat<axis = 0>(four, b, six) u = Reshape(r, back) y = Transpose<perm = [1, 0, 2]>(u)""",
    "picked by each row": """
        a = ArgMax<axis = 2, keepdims = 1>(x) y = GatherElements<axis = 2>(x, a)""",
    "expanded to the batch": """
        b = Shape<start = 0, end = 1>(x) c = Constant<value_ints = [4, 6]>() s = Concat<axis = 0>(b, c)
        one = Constant<value_float = 2.0>() e = Expand(one, s) y = Add(x, e)""",
    "sorted": "k = Constant<value_ints = [3]>() y, i = TopK<axis = 1>(x, k)",
    "scattered behind the rows": """
        t = Transpose<perm = [1, 0, 2]>(x) i = Constant<value = int64[2, 1] {2, 0}>() o = Constant<value_ints = [0]>()
        two = Constant<value_ints = [2]>() u = Slice(t, o, two, o) n = Neg(u) s = ScatterND(t, i, n)
        y = Transpose<perm = [1, 0, 2]>(s)""",
    "padded": "p = Constant<value_ints = [0, 1, 0, 0, 0, 2]>() y = Pad(x, p)",
}

MIXING = {
    "mean of the batch": ("a = Constant<value_ints = [0]>() m = ReduceMean(x, a) y = Sub(x, m)", "ReduceMean"),
    "softmax over the batch": ("y = Softmax<axis = 0>(x)", "Softmax"),
    "scattered to rows": (
        "i = Constant<value = int64[1, 1] {0}>() c = Constant<value_ints = [1, 4, 6]>() u = ConstantOfShape(c) "
        "y = ScatterND(x, i, u)",
        "ScatterND",
    ),
    "running sum": ("a = Constant<value_int = 0>() y = CumSum(x, a)", "CumSum"),
    "reversed": (
        "s = Constant<value_ints = [-1]>() e = Constant<value_ints = [-1000]>() a = Constant<value_ints = [0]>() "
        "y = Slice(x, s, e, a, s)",
        "Slice",
    ),
    "first row": ("i = Constant<value_ints = [0]>() f = Gather<axis = 0>(x, i) y = Add(x, f)", "Gather"),
    "joined to itself": ("y = Concat<axis = 0>(x, x)", "Concat"),
    "scores of all rows": (
        "s = Constant<value_ints = [-1, 24]>() f = Reshape(x, s) t = Transpose(f) y = MatMul(f, t)",
        "MatMul",
    ),
    "the number of rows": (
        "b = Shape<start = 0, end = 1>(x) n = Cast<to = 1>(b) y = Div(x, n)",
        "Cast",
    ),
    "the number of the row": (
        "b = Shape<start = 0, end = 1>(x) z = Constant<value_int = 0>() o = Constant<value_int = 1>() e = Squeeze(b) "
        "r = Range(z, e, o) f = Cast<to = 1>(r) s = Constant<value_ints = [-1, 1, 1]>() g = Reshape(f, s) "
        "y = Mul(x, g)",
        "Range",
    ),
    "noise": ("n = RandomNormalLike<seed = 1.0>(x) y = Add(x, n)", "RandomNormalLike"),
    "range of all elements": ("y, s, z = DynamicQuantizeLinear(x)", "DynamicQuantizeLinear"),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_rows_are_proven(name):
    assert prove(INDEPENDENT[name]).outputs["y"] == 0


@pytest.mark.parametrize("name", MIXING)
def test_the_node_that_mixes_rows_is_named(name):
    body, op = MIXING[name]
    outputs = "uint8[N, 4, 6] y" if "Quantize" in op else "float[N, k] y"
    with pytest.raises(ShaderloomError) as refusal:
        prove(body, outputs=outputs)
    assert refusal.value.origin is not None and refusal.value.origin.op == op


def test_all_nodes_that_mix_rows_are_listed():
    body = "a = Softmax<axis = 0>(x) z = Constant<value_int = 0>() b = CumSum(x, z) y = Add(a, b)"
    with pytest.raises(UnsupportedError) as refusal:
        prove(body)
    assert [part.origin.op for part in refusal.value.parts] == ["Softmax", "CumSum"]


def test_shared_inputs_belong_to_all_rows():
    ports = prove("y = MatMul(x, shared)", "float[N, 4, 6] x, float[6, 2] shared", x=(1, 4, 6), shared=(6, 2))
    assert ports == BatchPorts({"x": 0}, {"y": 0})
    with pytest.raises(UnsupportedError, match="the same for all"):
        prove("y = Relu(shared)", "float[N, 4, 6] x, float[6, 2] shared", x=(1, 4, 6), shared=(6, 2))


def test_an_output_of_several_elements_a_row_is_refused():
    with pytest.raises(UnsupportedError, match="4 elements along axis 0 for each row"):
        prove("s = Constant<value_ints = [-1, 6]>() y = Reshape(x, s)")


@pytest.mark.parametrize("op", ["LinearAttention", "GatedDeltaNet"])
def test_recurrences_over_sequences_are_proven(op):
    """At least one example of each has sequences of its own, whose rows are then compared below."""
    proven = []
    for operator in all_cases():
        if operator.definition.name != op:
            continue
        names = {name for name, array in operator.feeds.items() if array.ndim > 2}
        dims = {name: ("N", *operator.feeds[name].shape[1:]) for name in names}
        shapes = {name: array.shape for name, array in operator.feeds.items()}
        try:
            proven.append(prove_rows(load_model(operator.model(dims)), shapes, dict.fromkeys(names, 0), MOST).outputs)
        except ShaderloomError:
            continue
    assert proven and all(axis == 0 for outputs in proven for axis in outputs.values())


def row_sets(operator: OperatorCase) -> list[tuple[str, ...]]:
    """Sets of operands with leading axes of equal size, above 1, that may be the rows."""
    sizes = {name: array.shape[0] for name, array in operator.feeds.items() if array.ndim and array.shape[0] > 1}
    names = sorted(sizes)
    sets = [each for count in range(1, len(names) + 1) for each in combinations(names, count)]
    return [each for each in sets if len({sizes[name] for name in each}) == 1]


@pytest.mark.slow
@pytest.mark.parametrize("operator", all_cases(), ids=lambda operator: operator.name)
def test_what_is_proven_of_an_operator_holds(operator):
    """Whatever set of operands is proven to have rows: each row alone gives the rows of the whole result."""
    for names in row_sets(operator):
        dims = {name: ("N", *operator.feeds[name].shape[1:]) for name in names}
        model = operator.model(dims)
        shapes = {name: array.shape for name, array in operator.feeds.items()}
        try:
            outputs = prove_rows(load_model(model), shapes, dict.fromkeys(names, 0), MOST).outputs
        except ShaderloomError:
            continue  # nothing is proven
        try:
            whole = run_onnxruntime(model, operator.feeds)
            rows = [run_onnxruntime(model, feeds) for feeds in rows_of(operator, names)]
        except NotImplementedError:
            continue  # onnxruntime asks other operands to have as many rows, where they are not read
        for number, row in enumerate(rows):
            for name, alone, result in zip(operator.output_names, row, whole, strict=True):
                error = difference(alone, result.take([number], outputs[name]))
                assert error <= operator.case.tolerance, (names, name, number)


def rows_of(operator: OperatorCase, names: tuple[str, ...]) -> list[dict[str, np.ndarray]]:
    """Inputs of single rows, in order."""
    return [
        {name: x[row : row + 1] if name in names else x for name, x in operator.feeds.items()}
        for row in range(operator.feeds[names[0]].shape[0])
    ]
