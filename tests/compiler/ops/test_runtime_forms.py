"""Forms of operators that onnxruntime writes or takes beyond the standard's text, as it computes them.

Covers: compiler/frontend/schemas, compiler/ops/onnx/normalization, compiler/ops/onnx/fourier.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

from shaderloom.runtime.plan.errors import ModelError, ShapeError
from tests.support.programs import numbers

pytest.importorskip("onnxruntime")

LAYER = """
<ir_version: 7, opset_import: ["" : {opset}]>
g (float[2, 3, 5] x, float[5] s, float[5] b) => (float[2, 3, 5] y) {{
    t = LayerNormalization<axis = -1, epsilon = 0.001>(x, s, b)
    y = ThresholdedRelu<alpha = 0.25>(t)
}}
"""


@pytest.mark.parametrize("opset", [7, 11, 16])
def test_normalisations_that_an_optimiser_saved(pair, opset):
    """onnxruntime's optimiser writes LayerNormalization into models of any opset."""
    pair(parse_model(LAYER.format(opset=opset))).check(x=numbers(2, 3, 5), s=numbers(5, seed=1), b=numbers(5, seed=2))


def test_other_operators_stay_with_their_opset(pair):
    with pytest.raises(ModelError, match="operator 'Gelu' is not part of opset 17"):
        pair(parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) { y = Gelu(x) }'))


def batch_normalisation(shape: list[int], **attributes: int) -> onnx.ModelProto:
    make = onnx.helper
    ports = [make.make_tensor_value_info(name, 1, shape[1:] if name != "x" else shape) for name in "xsbmv"]
    node = make.make_node("BatchNormalization", list("xsbmv"), ["y"], **attributes)
    graph = make.make_graph([node], "g", ports, [make.make_tensor_value_info("y", 1, shape)])
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 7)], ir_version=3)


@pytest.mark.parametrize("shape", [[2, 3, 4, 5], [4, 6]])
def test_batch_normalisation_of_single_elements(pair, shape):
    rest = {name: np.abs(numbers(*shape[1:], seed=seed)) + 0.5 for seed, name in enumerate("sbmv", 1)}
    pair(batch_normalisation(shape, spatial=0)).check(x=numbers(*shape), **rest)


def test_single_elements_need_a_number_each(pair):
    model = batch_normalisation([2, 3, 4], spatial=0)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 4
    with pytest.raises(ShapeError, match="input 1 must have one number for each element of an example"):
        pair(model).session.prepare()


STFT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 64] x, float[16] w) => (float[2, 7, {bins}, 2] y)
<int64 step = {{8}}> {{
    y = STFT<onesided = {onesided}>(x, step, w)
}}
"""


@pytest.mark.parametrize(("onesided", "bins"), [(1, 9), (0, 16)])
def test_signals_without_a_last_axis(pair, onesided, bins):
    model = parse_model(STFT.format(onesided=onesided, bins=bins))
    pair(model).check(x=numbers(2, 64), w=np.hanning(16).astype(np.float32))
