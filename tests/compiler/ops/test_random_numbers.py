"""Random generators: distributions, seeds, and the same numbers on the host and on each device."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ...support.running import run_model

SAMPLES = 20_000


def _model(op: str, count: int = 1, inputs: tuple[np.ndarray, ...] = (), **attributes: Any) -> onnx.ModelProto:
    names = [f"x{number}" for number in range(len(inputs))]
    nodes = [helper.make_node(op, names, [f"y{number}"], **attributes) for number in range(count)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in zip(names, inputs)]
    outputs = [onnx.ValueInfoProto(name=f"y{number}") for number in range(count)]
    graph = helper.make_graph(nodes, "random", values, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_normal(each_device):
    model = _model("RandomNormal", shape=[SAMPLES], mean=2.0, scale=3.0, seed=7.0)
    (values,) = run_model(each_device, model, {})
    # five times the deviation of a mean and of a variance of that many samples
    assert abs(values.mean() - 2.0) < 5 * 3 / SAMPLES**0.5
    assert abs(values.var() / 9 - 1) < 5 * (2 / SAMPLES) ** 0.5
    assert abs(np.mean(values > 2 + 3 * 1.6449) - 0.05) < 5 * (0.05 / SAMPLES) ** 0.5


def test_uniform(each_device):
    model = _model("RandomUniform", shape=[SAMPLES], low=-1.0, high=3.0, seed=7.0)
    (values,) = run_model(each_device, model, {})
    assert values.min() >= -1 and values.max() < 3
    counts, _ = np.histogram(values, 16, (-1, 3))
    expected = SAMPLES / 16
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi squared of 15 degrees: one in ten thousand
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / SAMPLES**0.5


def test_multinomial_and_bernoulli(device):
    probabilities = np.array([[0.1, 0.2, 0.7]], np.float32)
    model = _model("Multinomial", inputs=(probabilities,), sample_size=SAMPLES, seed=3.0)
    (drawn,) = run_model(device, model, {"x0": np.log(probabilities)})
    shares = np.bincount(drawn[0], minlength=3) / SAMPLES
    assert np.abs(shares - probabilities[0]).max() < 5 * 0.5 / SAMPLES**0.5
    rates = np.full(SAMPLES, 0.3, np.float32)
    (drawn,) = run_model(device, _model("Bernoulli", inputs=(rates,), seed=3.0), {"x0": rates})
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert abs(drawn.mean() - 0.3) < 5 * 0.46 / SAMPLES**0.5


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_seeds(op: str, device):
    """A seed says which numbers; without one two nodes have different ones."""
    first, again = run_model(device, _model(op, 2, shape=[100], seed=5.0), {})
    (other,) = run_model(device, _model(op, shape=[100], seed=6.0), {})
    left, right = run_model(device, _model(op, 2, shape=[100]), {})
    assert np.array_equal(first, again)
    assert not np.isin(first, other).all() and not np.array_equal(left, right)
    assert abs(np.corrcoef(left, right)[0, 1]) < 0.5
