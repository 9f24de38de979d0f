"""Long chains of one kind of node, as a hostile or a careless exporter writes them.

``python -m tests.support.chains NAME LENGTH`` imports and compiles one, and prints what its plan takes as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shaderloom.runtime.plan.device_profile import WEB

from .running import compile_for

Step = Callable[[int, str], list[onnx.NodeProto]]  #: the nodes of a step, from its number and what it reads; `v<n>`


def _chain(
    length: int,
    step: Step,
    shape: Sequence[int],
    dtype: int = TensorProto.FLOAT,
    constants: dict[str, np.ndarray] | None = None,
    inputs: dict[str, tuple[int, Sequence[int]]] | None = None,
) -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    for number in range(length):
        nodes += step(number, f"v{number - 1}" if number else "x")
    given = {"x": (dtype, shape), **(inputs or {})}
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info(name, *form) for name, form in given.items()],
        [helper.make_tensor_value_info(f"v{length - 1}", dtype, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def unary(length: int, operator: str) -> onnx.ModelProto:
    """Return ``operator`` of ``operator`` of ..."""
    return _chain(length, lambda number, value: [helper.make_node(operator, [value], [f"v{number}"])], (16, 16))


def binary(length: int, operator: str, *, itself: bool = False) -> onnx.ModelProto:
    """Return a chain of a binary operator with one operand ``y``, or twice the same."""

    def step(number: int, value: str) -> list[onnx.NodeProto]:
        return [helper.make_node(operator, [value, value if itself else "y"], [f"v{number}"])]

    return _chain(length, step, (16, 16), inputs={} if itself else {"y": (TensorProto.FLOAT, (16, 16))})


def gathers(length: int) -> onnx.ModelProto:
    """Return a chain of ``v + Gather(v, indices)``."""

    def step(number: int, value: str) -> list[onnx.NodeProto]:
        gather = helper.make_node("Gather", [value, "indices"], [f"g{number}"])
        return [gather, helper.make_node("Add", [value, f"g{number}"], [f"v{number}"])]

    return _chain(length, step, (16,), inputs={"indices": (TensorProto.INT64, (16,))})


def gathers_of_itself(length: int) -> onnx.ModelProto:
    """Return a chain of ``Gather(v, v)``, which doubles with every node when it is written as an expression."""

    def step(number: int, value: str) -> list[onnx.NodeProto]:
        return [helper.make_node("Gather", [value, value], [f"v{number}"])]

    return _chain(length, step, (16,), TensorProto.INT32)


def reshapes(length: int) -> onnx.ModelProto:
    """Return pairs of Reshape and Transpose whose sizes have no common factors: no index simplifies."""
    sizes = ((35, 66), (22, 105), (30, 77))

    def step(number: int, value: str) -> list[onnx.NodeProto]:
        reshape = helper.make_node("Reshape", [value, f"size{number % 3}"], [f"r{number}"])
        return [reshape, helper.make_node("Transpose", [f"r{number}"], [f"v{number}"])]

    constants = {f"size{number}": np.array(size, np.int64) for number, size in enumerate(sizes)}
    return _chain(length, step, (2310,), constants=constants)


def pads(length: int, mode: str) -> onnx.ModelProto:
    """Return a chain of Pad, by one element on either side of one axis."""

    def step(number: int, value: str) -> list[onnx.NodeProto]:
        return [helper.make_node("Pad", [value, "pads"], [f"v{number}"], mode=mode)]

    return _chain(length, step, (3, 5), constants={"pads": np.array([0, 1, 0, 1], np.int64)})


def resizes(length: int) -> onnx.ModelProto:
    """Return a chain of linear Resize to the same size, shifted: each element is made of several."""

    def step(number: int, value: str) -> list[onnx.NodeProto]:
        attributes = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
        return [helper.make_node("Resize", [value, "roi", "", "sizes"], [f"v{number}"], **attributes)]

    constants = {"roi": np.array([0, 0.1, 1, 0.9], np.float32), "sizes": np.array([3, 7], np.int64)}
    return _chain(length, step, (3, 7), constants=constants)


def rolls(length: int) -> onnx.ModelProto:
    """Return a chain of ``v + Concat(Slice(v), Slice(v))``: each element is read at two places."""

    def step(number: int, value: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Slice", [value, "three", "end"], [f"a{number}"]),
            helper.make_node("Slice", [value, "zero", "three"], [f"b{number}"]),
            helper.make_node("Concat", [f"a{number}", f"b{number}"], [f"c{number}"], axis=0),
            helper.make_node("Add", [value, f"c{number}"], [f"v{number}"]),
        ]

    constants = {name: np.array([at], np.int64) for name, at in {"zero": 0, "three": 3, "end": 16}.items()}
    return _chain(length, step, (16,), constants=constants)


def shifts(length: int) -> onnx.ModelProto:
    """Return a chain of sums of two Pads, which shift by one row in either direction, and lose a row each."""

    def step(number: int, value: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Pad", [value, "up"], [f"p{number}"]),
            helper.make_node("Slice", [f"p{number}", "zero", "rows"], [f"a{number}"]),
            helper.make_node("Pad", [value, "down"], [f"q{number}"]),
            helper.make_node("Slice", [f"q{number}", "one", "end"], [f"b{number}"]),
            helper.make_node("Add", [f"a{number}", f"b{number}"], [f"v{number}"]),
        ]

    constants = {name: np.array([at], np.int64) for name, at in {"zero": 0, "one": 1, "rows": 16, "end": 17}.items()}
    constants |= {"up": np.array([1, 0, 0, 0], np.int64), "down": np.array([0, 0, 1, 0], np.int64)}
    return _chain(length, step, (16, 5), constants=constants)


#: chains of nodes that move elements of [6, 4], a step each from ``v`` to ``v``: nodes as (operator, operands,
#: result, attributes), and their constants
_MOVES: dict[str, tuple[list[tuple[str, list[str], str, dict[str, object]]], dict[str, list[int]]]] = {
    "reversals": (
        [("Slice", ["v", "last", "first", "axes", "back"], "w", {})],
        {
            "last": [5, 3],
            "first": [-100, -100],
            "axes": [0, 1],
            "back": [-1, -1],
        },
    ),
    "squeezes": ([("Unsqueeze", ["v", "axis"], "a", {}), ("Squeeze", ["a", "axis"], "w", {})], {"axis": [1]}),
    "expands": (
        [
            ("Slice", ["v", "zero", "one", "zero"], "a", {}),
            ("Expand", ["a", "shape"], "b", {}),
            ("Add", ["v", "b"], "w", {}),
        ],
        {"zero": [0], "one": [1], "shape": [6, 4]},
    ),
    "splits": (
        [("Split", ["v", "sizes"], "a b", {"axis": 0}), ("Concat", ["b", "a"], "w", {"axis": 0})],
        {"sizes": [2, 4]},
    ),
    "tiles": (
        [("Tile", ["v", "twice"], "a", {}), ("Slice", ["a", "start", "end", "axes"], "w", {})],
        {"twice": [2, 1], "start": [3], "end": [9], "axes": [0]},
    ),
    "constant gathers": ([("Gather", ["v", "places"], "w", {"axis": 0})], {"places": [3, 1, 4, 0, 5, 2]}),
    "nearest resizes": (
        [
            ("Resize", ["v", "", "", "large"], "a", {"mode": "nearest"}),
            ("Resize", ["a", "", "", "small"], "w", {"mode": "nearest", "nearest_mode": "ceil"}),
        ],
        {"large": [7, 9], "small": [6, 4]},
    ),
}


def moves(length: int, name: str) -> onnx.ModelProto:
    """Return a chain of one of :data:`_MOVES`."""
    nodes, constants = _MOVES[name]

    def step(number: int, value: str) -> list[onnx.NodeProto]:
        names = {"": "", "v": value, "w": f"v{number}", **{each: each for each in constants}}

        def named(each: str) -> str:
            return names.get(each, f"{each}{number}")

        return [
            helper.make_node(op, [named(each) for each in operands], [named(each) for each in result.split()], **extra)
            for op, operands, result, extra in nodes
        ]

    return _chain(length, step, (6, 4), constants={each: np.array(v, np.int64) for each, v in constants.items()})


def element_gathers(length: int) -> onnx.ModelProto:
    """Return a chain of GatherElements with the places of the run."""

    def step(number: int, value: str) -> list[onnx.NodeProto]:
        return [helper.make_node("GatherElements", [value, "indices"], [f"v{number}"])]

    return _chain(length, step, (16,), inputs={"indices": (TensorProto.INT64, (16,))})


def scores(length: int) -> onnx.ModelProto:
    """Return an attention whose scores are doubled time and again between their product and the softmax."""
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["x"]),
        *binary(length, "Add", itself=True).graph.node,
        helper.make_node("Softmax", [f"v{length - 1}"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    shapes = {"q": (2, 64, 32), "k": (2, 32, 64), "v": (2, 64, 32)}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "scores", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


CHAINS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "gathers": gathers,
    "gathers of itself": gathers_of_itself,
    "reshapes": reshapes,
    "resizes": resizes,
    "rolls": rolls,
    "scores": scores,
    "element gathers": element_gathers,
    **{name: lambda length, name=name: moves(length, name) for name in _MOVES},
    "shifts": shifts,
    **{
        f"pads {mode}": lambda length, mode=mode: pads(length, mode) for mode in ("constant", "reflect", "edge", "wrap")
    },
    **{name: lambda length, name=name: unary(length, name) for name in ("Relu", "Sin", "Mish", "Identity")},
    **{name: lambda length, name=name: binary(length, name) for name in ("Add", "Max", "Pow")},
    "Mul itself": lambda length: binary(length, "Mul", itself=True),
}


def measure(model: onnx.ModelProto) -> dict[str, int]:
    """Compile ``model`` for its declared shapes and return what the plan takes."""
    feeds = {
        value.name: np.zeros(
            [dim.dim_value for dim in value.type.tensor_type.shape.dim],
            helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
        )
        for value in model.graph.input
    }
    plan = compile_for(model, feeds, WEB, verify=False)
    return {
        "calls": len(list(plan.calls)),
        "longest": max((len(kernel.wgsl) for kernel in plan.kernels), default=0),
        "refusals": len(plan.notes.not_fused),
    }


if __name__ == "__main__":  # LENGTH NAME ...
    for chain in sys.argv[2:]:
        print(json.dumps(measure(CHAINS[chain](int(sys.argv[1])))), flush=True)
