"""Whole models, imported, specialised and expanded, give onnxruntime's results when numpy interprets their IR.

Covers: compiler/reference, compiler/binding/shape_binding.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image, ImageDraw, ImageFont

from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.graph import verify
from shaderloom.compiler.ops.registry import registry
from shaderloom.compiler.passes.expand import expand
from shaderloom.compiler.reference.interpreter import run_graph

from ...support.effort import quick_first
from ...support.models import filled_model, trained_model
from ...support.passes import lower_model

TRAINED = {
    "ppocr_det": (1, 3, 96, 160),
    "ppocr_rec": (1, 3, 48, 160),
    "ppocr_cls": (2, 3, 48, 192),
}
FILLED = {
    "squeezenet1_1": {},
    "mobilenet_v2": {},
    "efficientnet_b0": {},
    "bert_small_dynamic": {"batch": 2, "sequence": 7},
    "decoder_kv": {"batch": 2, "sequence": 3, "past": 5},
    "unet_small": {"batch": 1, "height": 32, "width": 64},
}


def _picture_of_text(shape: tuple[int, ...]) -> np.ndarray:
    """Dark text on white, normalised as the text models expect: on noise they find nothing and amplify rounding."""
    batch, channels, height, width = shape
    image = Image.new("L", (width, height), 255)
    font = ImageFont.load_default(0.6 * min(height, 48))
    ImageDraw.Draw(image).text((8, height // 2), "Shader 27", 0, font, anchor="lm")
    pixels = np.asarray(image, np.float32) / 127.5 - 1
    return np.broadcast_to(pixels, (batch, channels, height, width)).copy()


def _feeds(model, sizes):
    draw = np.random.default_rng(3)
    feeds = {}
    for port in model.inputs:
        dims = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in port.dims)
        if port.dtype.is_integer:
            high = 2 if "mask" in port.name else 100
            feeds[port.name] = draw.integers(high - 1 if high == 2 else 0, high, dims).astype(port.dtype.numpy)
        else:
            feeds[port.name] = draw.standard_normal(dims).astype(port.dtype.numpy)
    return feeds


def _graph(model, feeds, dynamic=None):
    bound = bind_shapes(model, {name: array.shape for name, array in feeds.items()}, dynamic)
    graph = specialise(model, bound.shapes)
    verify(graph)
    expand(graph)
    verify(graph)
    assert all(registry.of(node).expand is None for node in graph.nodes)
    return graph


def _check(path, graph, feeds, sizes=None):
    levels = onnxruntime.GraphOptimizationLevel
    plain, optimised = _reference(path, feeds, levels.ORT_DISABLE_ALL), _reference(path, feeds, levels.ORT_ENABLE_ALL)
    found = run_graph(graph, feeds, sizes)
    for name, expected, other, array in zip(graph.output_names, plain, optimised, found, strict=True):
        assert array.shape == expected.shape, name
        assert array.dtype == expected.dtype, name
        scale = np.abs(expected).max()
        spread = np.abs(other - expected).max() / scale
        assert np.abs(array - expected).max() / scale <= max(1e-4, 4 * spread), name


def _reference(path, feeds, level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_trained_models(name):
    path = trained_model(name)
    model = load_model(path)
    feeds = {model.inputs[0].name: _picture_of_text(TRAINED[name])}
    _check(path, _graph(model, feeds), feeds)


@pytest.mark.parametrize("name", quick_first(FILLED))
def test_exported_architectures(name):
    path = filled_model(name)
    model = load_model(path)
    feeds = _feeds(model, FILLED[name])
    _check(path, _graph(model, feeds), feeds)


@pytest.mark.parametrize(
    ("name", "dynamic", "others"),
    [
        pytest.param(
            "bert_small_dynamic", {"sequence": (1, 512)}, [{"sequence": 1}, {"sequence": 12}], marks=pytest.mark.slow
        ),
        ("bert_small_dynamic", {"batch": (1, 8), "sequence": (1, 512)}, [{"batch": 3, "sequence": 4}]),
        pytest.param("decoder_kv", {"past": (0, 4096)}, [{"past": 0}, {"past": 6}], marks=pytest.mark.slow),
        (
            "decoder_kv",
            {"batch": (1, 8), "sequence": (1, 512), "past": (0, 4096)},
            [{"batch": 1, "sequence": 1, "past": 9}, {"sequence": 4, "past": 0}],
        ),
    ],
    ids=["bert sequence", "bert batch and sequence", "decoder past", "decoder everything"],
)
def test_one_graph_serves_every_size_of_declared_dimensions(name, dynamic, others):
    path = filled_model(name)
    model = load_model(path)
    graph = _graph(model, _feeds(model, FILLED[name]), dynamic)
    for other in ({}, *others):
        sizes = {**FILLED[name], **other}
        _check(path, graph, _feeds(model, sizes), sizes)


def test_an_input_of_halves_that_is_an_output_of_float32_is_widened():
    """Passes give such an input float32 values that are stored as float16, and leave the Cast out."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float16[3] x) => (float[3] y) { y = Cast <to = 1> (x) }'
    )
    outputs: list[np.ndarray] = []

    def run(report, graph) -> None:
        if report.name == "operand-limit":
            outputs.extend(run_graph(graph, {"x": np.array([-1.25, 0, 3], np.float16)}))

    lower_model(model, {"x": (3,)}, observer=run)
    assert [(each.dtype, each.tolist()) for each in outputs] == [(np.float32, [-1.25, 0, 3])]
