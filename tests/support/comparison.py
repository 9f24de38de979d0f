"""Comparing with onnxruntime, within the tolerance that design asks for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

Feeds = Mapping[str, np.ndarray]


def reference(model: Path | bytes | ModelProto, feeds: Feeds, *, optimised: bool = False) -> list[np.ndarray]:
    """onnxruntime's outputs on the CPU, with its graph optimisations off unless ``optimised``.

    Products of bytes are exact: without the option onnxruntime saturates pairs of them on processors that lack VNNI.
    """
    pytest.importorskip("onnxruntime")
    if isinstance(model, ModelProto):
        model = model.SerializeToString()
    source = model if isinstance(model, bytes) else str(model)
    return _session(source, optimised).run(None, dict(feeds))


@lru_cache(maxsize=2)
def _session(source: bytes | str, optimised: bool) -> Any:
    """The sessions of the last model, which many tests feed again and again."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def relative_error(result: np.ndarray, expected: np.ndarray) -> float:
    """Largest error over the largest expected magnitude; infinite if non-finite values differ."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return float("inf")
    if not expected.size:
        return 0.0
    left, right = result.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(right)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True) or not np.isfinite(left[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(left[finite] - right[finite]).max() / max(np.abs(right[finite]).max(), 1e-30))


def assert_model_close(results: list[np.ndarray], model: Path | bytes, feeds: Feeds) -> None:
    """At most the greater of 1e-4 and four times onnxruntime's own spread between its optimisation levels."""
    expected = reference(model, feeds)
    optimised = reference(model, feeds, optimised=True)
    assert len(results) == len(expected)
    for number, (result, plain, fast) in enumerate(zip(results, expected, optimised, strict=True)):
        tolerance = max(1e-4, 4 * relative_error(fast, plain))
        error = relative_error(result, plain)
        assert error <= tolerance, f"output {number}: error {error:.2e}, tolerance {tolerance:.2e}"
