"""What runs have reached: the largest magnitudes by node, of real inputs before random ones."""

from __future__ import annotations

import numpy as np

from shaderloom.model.calibration import Calibration, magnitude
from shaderloom.runtime.plan.dtypes import FLOAT16_LARGEST, RANGE_MARGIN


def test_the_largest_counts_and_random_inputs_are_forgotten():
    reached = Calibration()
    assert reached.is_new
    assert not reached.covers(["a"])
    reached.add({"a": 70000.0, "b": 90000.0}, assumed=True)
    assert reached.covers(["a", "b"])
    assert not reached.is_new
    assert reached.option() == [["a", 70000.0], ["b", 90000.0]]
    reached.add({"a": 12.0})
    reached.add({"a": 7.0})
    assert reached.reached == {"a": 12.0}
    assert reached.option() == [["b", 90000.0]], "a real magnitude replaces an assumed one"
    reached.forget_assumed()
    assert not reached.covers(["b"])
    assert reached.option() == []


def test_only_what_float16_lacks_is_an_option():
    reached = Calibration()
    reached.add({"fits": FLOAT16_LARGEST / RANGE_MARGIN, "large": 123456.0, "nothing": 0.0, "tiny": 1e-6})
    assert reached.option() == [["large", 120000.0], ["tiny", 1e-6]]


def test_magnitudes_are_finite():
    assert magnitude(np.array([np.nan, -3.5, np.inf, 2.0], np.float32)) == 3.5
    assert magnitude(np.array([np.nan, np.inf], np.float32)) == 0.0
    assert magnitude(np.zeros((0, 4), np.float32)) == 0.0
