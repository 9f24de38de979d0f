"""Products whose sums are longer than the loops of one thread may be on software drivers, for many rows.

Covers: compiler/tuning/gemm_tiles.py, compiler/kernels/products.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from shaderloom import InferenceSession

from ...support.comparison import reference, relative_error

Case = tuple[str, dict[str, int], tuple[int, ...], tuple[int, ...]]  #: operator, attributes, shapes of input and weight

CASES: dict[str, Case] = {
    "wide filters of one dimension": ("Conv", {}, (1, 512, 160), (16, 512, 128)),
    "large windows": ("Conv", {}, (1, 64, 40, 40), (16, 64, 33, 33)),
    "transposed operand": ("Gemm", {"transA": 1}, (66_560, 16), (66_560, 12)),
    "transposed convolution": ("ConvTranspose", {}, (1, 160, 50), (160, 16, 512)),
}


def model_of(case: Case, dtype: type, *, open_batch: bool = False) -> tuple[ModelProto, dict[str, np.ndarray]]:
    operator, attributes, shape, weight_shape = case
    generator = np.random.default_rng(0)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weight = (generator.standard_normal(weight_shape) * 0.1).astype(dtype)
    declared = ["n", *shape[1:]] if open_batch else list(shape)
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "w"], ["y"], **attributes)],
        "long",
        [helper.make_tensor_value_info("x", element, declared)],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model, {"x": (generator.standard_normal(shape) * 0.1).astype(dtype)}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", CASES)
def test_more_terms_than_a_loop_may_have(each_device, name: str, dtype: type) -> None:
    model, feeds = model_of(CASES[name], dtype)
    with InferenceSession(model, device=each_device, cache=False) as session:
        (found,) = session.run(None, feeds)
    wide, _ = model_of(CASES[name], np.float32)
    if dtype is np.float16:  # the same halves, computed in float32
        weight = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float32)
        wide.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    (expected,) = reference(wide.SerializeToString(), {"x": feeds["x"].astype(np.float32)})
    assert found.dtype == dtype
    assert relative_error(found.astype(np.float32), expected) <= (1e-5 if dtype is np.float32 else 1e-3)


def test_of_a_declared_batch(device) -> None:
    model, feeds = model_of(CASES["wide filters of one dimension"], np.float32, open_batch=True)
    with InferenceSession(model, device=device, cache=False, dynamic={"n": (1, 4)}) as session:
        (found,) = session.run(None, feeds)
    (expected,) = reference(model.SerializeToString(), feeds)
    assert relative_error(found, expected) <= 1e-5
