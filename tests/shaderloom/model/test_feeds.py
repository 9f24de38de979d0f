"""Feeds and shape keys: what a header takes, what is converted, and which sizes share a plan."""

from __future__ import annotations

import numpy as np
import pytest

from shaderloom.model.feeds import check_feeds, shape_key
from shaderloom.model.header import ModelHeader
from shaderloom.runtime.plan.declared_port import DeclaredPort
from shaderloom.runtime.plan.errors import InputError, UnsupportedError
from shaderloom.runtime.plan.model_metadata import ModelMetadata
from shaderloom.runtime.plan.size_range import SizeRange


def make_header(*ports: DeclaredPort) -> ModelHeader:
    return ModelHeader(ports, (), (), ModelMetadata(), 0, {})


def test_conversion_of_scalars():
    header = make_header(DeclaredPort("n", "int64", ()), DeclaredPort("flag", "bool", ()))
    feeds = check_feeds(header, {"n": 5, "flag": True})
    assert (feeds["n"].dtype, feeds["flag"].dtype) == (np.int64, np.bool_)
    for wrong in ({"n": 5.5, "flag": True}, {"n": 5, "flag": 1}, {"n": 2**80, "flag": True}):
        with pytest.raises(InputError):
            check_feeds(header, wrong)
    with pytest.raises(UnsupportedError, match="float64"):
        check_feeds(make_header(DeclaredPort("d", "float64", ())), {"d": np.float64(1)})


def test_shape_keys():
    header = make_header(
        DeclaredPort("a", "float32", ("batch", "n", None)),
        DeclaredPort("b", "float32", ("batch", 3, "?")),
        DeclaredPort("c", "float32", None),
    )
    shapes = {"a": (2, 5, 7), "b": (2, 3, 9), "c": (1, 1)}
    assert str(shape_key(header, shapes, {})) == "a=2x5x7, b=2x3x9, c=1x1"
    dynamic = {"n": SizeRange(1, 8)}
    assert shape_key(header, {**shapes, "a": (2, 6, 7)}, dynamic) == shape_key(header, shapes, dynamic)
    assert shape_key(header, shapes, {}) != shape_key(header, {**shapes, "c": (1, 2)}, {})
    for name, shape, message in (
        ("b", (3, 3, 9), "'batch', is 3 and elsewhere 2"),
        ("b", (2, 4, 9), "dimension 1 is 4, expected 3"),
        ("a", (2, 9, 7), "declared dynamic from 1 to 8"),
        ("a", (2, -1, 7), "negative"),
    ):
        with pytest.raises(InputError, match=message):
            shape_key(header, {**shapes, name: shape}, dynamic)
