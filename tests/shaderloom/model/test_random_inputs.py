"""Random inputs of a model: shapes, types, and the same ones again."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from shaderloom.compiler.frontend import load_model
from shaderloom.model.header import ModelHeader
from shaderloom.model.random_inputs import MOST_ELEMENTS, random_feeds
from shaderloom.runtime.plan.errors import InputError

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3] x, int64[n] i, bool[n] c, float16[2] h) => (float[n, 3] y) <float[1] b = {1}> { y = Add(x, b) }"""
SHAPES = {"x": (5, 3), "i": (5,), "c": (5,), "h": (2,)}


@pytest.fixture
def header(tmp_path) -> ModelHeader:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(TEXT).SerializeToString())
    return ModelHeader.of(load_model(path))


def test_arrays_have_the_types_of_the_inputs_and_the_given_shapes(header):
    feeds = random_feeds(header, SHAPES)
    assert {name: array.shape for name, array in feeds.items()} == SHAPES
    assert [feeds[name].dtype.name for name in SHAPES] == ["float32", "int64", "bool", "float16"]
    assert set(feeds["i"]) <= {0, 1} and np.ptp(feeds["x"]) > 0
    for name, array in random_feeds(header, SHAPES).items():
        np.testing.assert_array_equal(array, feeds[name])
    assert (random_feeds(header, SHAPES, np.random.default_rng(1))["x"] != feeds["x"]).any()


def test_arrays_that_no_model_takes_are_refused(header):
    with pytest.raises(InputError, match="too many"):
        random_feeds(header, {"x": (MOST_ELEMENTS // 3 + 1, 3)})
