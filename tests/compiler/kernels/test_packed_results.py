"""Results that share a word among elements: who may store them.  Covers: compiler/kernels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import shaderloom

from ...support.running import compile_for, run_plan


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


#: kernels whose threads own no words, or only words of rows, with a view behind them that crosses rows
VIEWED = {
    "scatter": (
        "float16[2, 9] x, int64[2, 3] at, float16[2, 3] u",
        "r = ScatterElements <axis = 1> (x, at, u) y = Reshape (r, shape)",
        [3, 6],
    ),
    "transposed convolution": (
        "float16[1, 3, 3, 5] x, float16[3, 3, 2, 2] w",
        "r = ConvTranspose (x, w) y = Transpose <perm = [0, 2, 3, 1]> (r)",
        None,
    ),
    "clipped phases of a transposed convolution": (
        "float16[1, 4, 3, 5] x, float16[4, 3, 4, 4] w",
        "y = ConvTranspose <strides = [4, 4], pads = [1, 2, 0, 1]> (x, w)",
        None,
    ),
    "rows of several reductions": (
        "float16[1, 6, 5] x",
        "g = Reshape (x, shape) s = Softmax <axis = 2> (g) y = Transpose <perm = [0, 2, 1]> (s)",
        [1, 2, 15],
    ),
    "scatter of rows": (
        "float16[2, 8] x, int64[2, 3] at, float16[2, 3] u",
        "r = ScatterElements <axis = 1> (x, at, u) y = Reshape (r, shape)",
        [1, 2, 8],
    ),
    "convolution of rows": (
        "float16[1, 3, 4, 8] x, float16[3, 3, 3, 3] w",
        "r = Conv <pads = [1, 1, 1, 1]> (x, w) y = Reshape (r, shape)",
        [12, 8],
    ),
    "transposed convolution of rows": (
        "float16[1, 3, 3, 7] x, float16[3, 3, 2, 2] w",
        "r = ConvTranspose (x, w) y = Reshape (r, shape)",
        [12, 8],
    ),
    "recurrent": (
        "float16[5, 1, 3] x, float16[1, 4, 3] w, float16[1, 4, 4] b",
        "r, h = RNN <hidden_size = 4> (x, w, b) y = Reshape (r, shape)",
        [5, 4],
    ),
    "attention of rows": (
        "float16[2, 6, 5] q, float16[2, 5, 6] k, float16[2, 6, 8] v",
        "a = MatMul (q, k) s = Softmax <axis = 2> (a) r = MatMul (s, v) y = Reshape (r, shape)",
        [12, 8],
    ),
    "attention": (
        "float16[1, 6, 5] q, float16[1, 5, 6] k, float16[1, 6, 5] v",
        "a = MatMul (q, k) s = Softmax <axis = 2> (a) r = MatMul (s, v) y = Reshape (r, shape)",
        [5, 6],
    ),
}


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("name", VIEWED)
def test_half_precision_behind_a_view(device, name, fusion):
    inputs, body, shape = VIEWED[name]
    constants = "" if shape is None else f"<int64[{len(shape)}] shape = {{{','.join(map(str, shape))}}}>"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float16[n, m] y) {constants} {{ {body} }}'
    )
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    generator = np.random.default_rng(0)
    feeds = {}
    for port in model.graph.input:
        sizes = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        floats = port.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
        feeds[port.name] = (
            generator.uniform(-1, 1, sizes).astype(np.float16)
            if floats
            else generator.permuted(np.tile(np.arange(9), (2, 1)), axis=1)[:, : sizes[1]]
        )
    plan = compile_for(model, feeds, device.profile, disabled_passes=() if fusion else ("fuse",))
    (result,) = run_plan(device, plan, model, feeds)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    assert result.dtype == np.float16
    np.testing.assert_allclose(result.astype(np.float32), expected.astype(np.float32), rtol=0, atol=1e-2)
