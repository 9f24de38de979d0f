"""Operands and attributes that no operator can have: own errors, none of which calls for a report, in little time.

Covers: compiler/ops/misfits.py, compiler/ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shaderloom.model.model import Model
from shaderloom.runtime.plan.device_profile import WEB
from shaderloom.runtime.plan.errors import InternalError, ShaderloomError, ShapeError

from ...support import processor_time
from ...support.cases import OperatorCase, all_cases
from ...support.effort import SOAK

SECONDS = 10
NUMBERS = (0, -1, 7, 1 << 20, 2**63 - 1)
#: One altered model of so many is compiled
SPARED = 1 if SOAK else 150
ALTERED = {int: ("i", NUMBERS), float: ("f", (np.inf, np.nan, 3.4e38, -1.0, 0.0))}


@pytest.fixture(autouse=True)
def timer() -> Iterator[None]:
    yield from processor_time.watching()


def compiled(model: onnx.ModelProto) -> None:
    with processor_time.at_most(SECONDS):
        loaded = Model(model.SerializeToString(), cache=False)
        try:
            shapes = {
                port.name: tuple(dim if isinstance(dim, int) else 3 for dim in port.dims or ())
                for port in loaded.header.inputs
            }
            loaded.compile(loaded.key(shapes), shapes, WEB)
        finally:
            loaded.close()


def altered(operator: OperatorCase) -> Iterator[onnx.ModelProto]:
    """Yield models with an operand left out, of another rank or size, or with an attribute far off."""
    base = operator.model(constant=operator.number % 2 == 1)

    def copy() -> onnx.ModelProto:
        model = onnx.ModelProto()
        model.CopyFrom(base)
        return model

    for position in range(len(base.graph.node[0].input)):
        model = copy()
        model.graph.node[0].input[position] = ""
        yield model
        model = copy()
        del model.graph.node[0].input[position:]
        yield model
    for position, port in enumerate(base.graph.input):
        for dims in ([], [0], [1] * 9, [2, 3, 4]):
            model = copy()
            info = helper.make_tensor_value_info(port.name, port.type.tensor_type.elem_type, dims)
            model.graph.input[position].CopyFrom(info)
            yield model
    for position, tensor in enumerate(base.graph.initializer):
        array = numpy_helper.to_array(tensor)
        for other in (array.reshape(-1)[:0], array[..., None], np.concatenate([array.reshape(-1)] * 2)):
            model = copy()
            model.graph.initializer[position].CopyFrom(numpy_helper.from_array(other, tensor.name))
            yield model
    for position, attribute in enumerate(base.graph.node[0].attribute):
        field, values = ALTERED.get(type(helper.get_attribute_value(attribute)), ("", ()))
        for value in values:
            model = copy()
            setattr(model.graph.node[0].attribute[position], field, value)
            yield model


@pytest.mark.slow
def test_what_no_operator_can_have() -> None:
    number = 0
    for operator in all_cases():
        for model in altered(operator):
            number += 1
            if number % SPARED:
                continue
            try:
                compiled(model)
            except InternalError as error:
                pytest.fail(f"{operator.name}, model {number}: {error}")
            except ShaderloomError:
                pass
    assert number > 10_000


FLOAT, COUNT = TensorProto.FLOAT, TensorProto.INT64


def node(op: str, inputs: dict[str, Any], constants: dict[str, np.ndarray], **attributes: Any) -> onnx.ModelProto:
    domain = attributes.pop("domain", "")
    graph = helper.make_graph(
        [helper.make_node(op, [*inputs, *constants], ["y"], domain=domain, **attributes)],
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


FOUND = {
    "STFT without a step": node("STFT", {"x": (FLOAT, [1, 16, 1])}, {"s": np.zeros(0, np.int64)}),
    "a bound of another rank": node("Clip", {"x": (FLOAT, [2]), "low": (FLOAT, [1] * 9)}, {}),
    "values of OneHot of another rank": node(
        "OneHot", {"x": (COUNT, [4])}, {"d": np.array([3]), "v": np.zeros((2, 1), np.float32)}
    ),
    "an infinite depth": node(
        "OneHot", {"x": (COUNT, [4])}, {"d": np.float32(np.inf), "v": np.array([0, 1], np.float32)}
    ),
    "a shape that is a matrix": node("ConstantOfShape", {}, {"s": np.ones((2, 1), np.int64)}),
    "a choice that is no condition": node("Where", {}, {name: np.ones(2, np.float32) for name in "cab"}),
    "padding of another type": node(
        "Pad", {"x": (COUNT, [4])}, {"p": np.array([1, 1]), "v": np.float32(1)}
    ),
    "heads of one element": node(
        "RotaryEmbedding",
        {"x": (FLOAT, [1, 2, 3, 1]), "p": (COUNT, [1, 3])},
        {"c": np.ones((4, 1), np.float32), "s": np.ones((4, 1), np.float32)},
        domain="com.microsoft",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_operands_that_do_not_fit(name: str) -> None:
    with pytest.raises(ShaderloomError) as caught:
        compiled(FOUND[name])
    assert not isinstance(caught.value, InternalError) and caught.value.origin is not None


def test_a_stumble_names_the_operands() -> None:
    with pytest.raises(ShapeError, match=r"STFT cannot take the operands float32 \(1, 16, 1\), int64 \(0\)"):
        compiled(FOUND["STFT without a step"])


def test_a_window_of_more_channels_than_there_are() -> None:
    """Those beyond add nothing, and take no time."""
    compiled(node("LRN", {"x": (FLOAT, [1, 4, 3, 3])}, {}, size=1 << 20))


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_a_region_that_is_no_region(number: float) -> None:
    roi = np.array([0, 0, 0, number, 1, 1, 1, 1], np.float32)
    constants = {"r": roi, "s": np.ones(4, np.float32) * np.float32([1, 1, 2, 2])}
    model = node("Resize", {"x": (FLOAT, [1, 1, 4, 4])}, constants, coordinate_transformation_mode="tf_crop_and_resize")
    with pytest.raises(ShaderloomError, match="roi needs finite numbers"):
        compiled(model)
