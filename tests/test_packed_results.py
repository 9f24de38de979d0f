"""Results that share a word among elements: who may store them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import shaderloom


def run(device, text: str, feeds: dict[str, np.ndarray], **options) -> list[np.ndarray]:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    with shaderloom.InferenceSession(model, device=device, cache=False, **options) as session:
        results = session.run(None, feeds)
    for result, expected in zip(results, ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_array_equal(result, expected)
    return results


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (3, 64)])
def test_comparison_of_a_sum_of_64_bit_integers(device, shape):
    x = np.random.default_rng(0).integers(-(2**40), 2**40, shape)
    run(
        device,
        f"""g (int64[{shape[0]},{shape[1]}] x, int64 bound) => (bool[{shape[0]}] y) <int64[1] axes = {{1}}> {{
            s = ReduceSum <keepdims = 0> (x, axes)
            y = Less (s, bound)
        }}""",
        {"x": x, "bound": np.array(0)},
    )


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_result_whose_declared_length_may_be_zero(device, size):
    run(
        device,
        """g (float[size] x, float bound) => (bool[n] y)
            <int64[1] b = {-1}, int64[1] e = {2}, int64[1] a = {0}, int64[1] t = {1}> {
            s = Slice (x, b, e, a, t)
            y = Less (s, bound)
        }""",
        {"x": np.arange(size, dtype=np.float32), "bound": np.array(1.5, np.float32)},
        dynamic={"size": (2, 4)},
    )
