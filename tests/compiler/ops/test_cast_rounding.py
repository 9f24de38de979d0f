"""A cast to a half rounds, whether or not the half is ever stored: the precision and the range are the model's.

Sessions follow the file here (``widen="off"``): by default, infinite outputs of finite inputs have the tensors in
between kept in float32.

Covers: compiler/ops/onnx/cast.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import shaderloom

HALVES = {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}
EDGES = [0.0, -0.0, 1e-9, -6e-8, 2049.3, 65504.0, 65519.99, 65520.0, -1e5, 3.4e38, np.inf, -np.inf, np.nan, 1 + 2**-11]


def numbers(count: int) -> np.ndarray:
    drawn = np.random.default_rng(count).standard_normal(count).astype(np.float32) * np.float32(300.0)
    drawn[: len(EDGES)] = EDGES[:count]
    return drawn


def run(device, nodes, feeds, outputs) -> list[np.ndarray]:
    """Results of a graph of ``nodes``; ``outputs`` name each with its element type."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    infos = [helper.make_tensor_value_info(name, element, None) for name, element in outputs.items()]
    graph = helper.make_graph(nodes, "g", inputs, infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = shaderloom.SessionOptions()
    options.widen = "off"
    with shaderloom.InferenceSession(model, options, device=device, cache=False) as session:
        return session.run(None, feeds)


@pytest.mark.parametrize("element", HALVES)
@pytest.mark.parametrize("count", [1, 3, 7, 65, 1000])
def test_there_and_back_in_one_kernel(device, element, count) -> None:
    x = numbers(count)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["m"]),
        helper.make_node("Cast", ["m"], ["h"], to=element),
        helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT),
    ]
    (y,) = run(device, nodes, {"x": x}, {"y": TensorProto.FLOAT})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, (x * x).astype(HALVES[element]).astype(np.float32))


@pytest.mark.parametrize("element", HALVES)
def test_what_follows_sees_the_rounded_number(device, element) -> None:
    x = numbers(65)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=element),
        helper.make_node("Cast", ["h"], ["w"], to=TensorProto.FLOAT),
        helper.make_node("IsInf", ["w"], ["infinite"]),
        helper.make_node("Sub", ["x", "w"], ["error"]),
    ]
    infinite, error = run(device, nodes, {"x": x}, {"infinite": TensorProto.BOOL, "error": TensorProto.FLOAT})
    with np.errstate(all="ignore"):
        rounded = x.astype(HALVES[element]).astype(np.float32)
        np.testing.assert_array_equal(infinite, np.isinf(rounded))
        np.testing.assert_array_equal(error, x - rounded)


@pytest.mark.parametrize("element", HALVES)
def test_integers(device, element) -> None:
    x = np.array([0, 255, 257, 2049, -4099, 65519, 70000, -(2**31)], np.int32)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=element),
        helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT),
    ]
    (y,) = run(device, nodes, {"x": x}, {"y": TensorProto.FLOAT})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, x.astype(np.float32).astype(HALVES[element]).astype(np.float32))
