"""Running one case through the backend: where it passed, or why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from shaderloom.backend import ShaderloomBackend
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.plan.errors import ShaderloomError

from .cases import ConformanceCase, Loaded

WGPU = ("wgpu",)
BOTH = ("wgpu", "cpu")

#: Kinds of outcomes: all results right, on the device alone or with the host's help; an error that says what is not
#: supported; a result that is not right; anything else (another exception, no answer in time, the end of the process);
#: a model that is not available
KINDS = ("wgpu", "cpu", "refused", "wrong", "failed", "missing")


@dataclass(frozen=True)
class Outcome:
    """How a case went; ``reason`` where it did not pass, and why the device alone refused it where it passed on cpu."""

    key: str
    kind: str
    reason: str = ""

    @property
    def passed(self) -> bool:
        return self.kind in ("wgpu", "cpu")


def run_case(case: ConformanceCase, device: Device) -> Outcome:
    """With wgpu alone; what that refuses, with cpu behind it."""
    alone = run_with(case, device, WGPU)
    if alone.kind != "refused":
        return alone
    both = run_with(case, device, BOTH)
    if both.passed:
        return Outcome(case.key, "cpu", alone.reason)
    return both


def run_with(case: ConformanceCase, device: Device, providers: Sequence[str]) -> Outcome:
    """Run every data set of a case."""
    assert case.load is not None, "whole models are measured"
    loaded = case.load()
    for data_set in loaded.data_sets:
        try:
            results = _run(loaded, data_set.inputs, device, providers)
        except ShaderloomError as error:
            return Outcome(case.key, "refused", str(error))
        except Exception as error:
            return Outcome(case.key, "failed", f"{type(error).__name__}: {error}")
        if len(results) != len(data_set.outputs):
            return Outcome(case.key, "wrong", f"{len(results)} outputs instead of {len(data_set.outputs)}")
        for position, (actual, expected) in enumerate(zip(results, data_set.outputs)):
            found = difference(actual, expected, loaded.relative, loaded.absolute)
            if found is not None:
                return Outcome(case.key, "wrong", f"output {position}: {found}")
    return Outcome(case.key, "wgpu" if tuple(providers) == WGPU else "cpu")


def _run(loaded: Loaded, inputs: Sequence[Any], device: Device, providers: Sequence[str]) -> tuple[Any, ...]:
    """The outputs."""
    options: dict[str, Any] = {"providers": list(providers), "cache": False, "device": device}
    return ShaderloomBackend.run_model(loaded.model, list(inputs), **options)


def difference(actual: Any, expected: Any, relative: float, absolute: float) -> str | None:
    """What is wrong with a result: an array, a list of results, or None for an empty optional.

    It may differ by one unit in the last place of the largest element: half-precision numbers are rounded once here and
    after every step of the suite's reference, and where the sum of large numbers is zero there, it is a rounding here.
    """
    if expected is None or actual is None:
        return None if actual is expected else "an empty optional on one side"
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            return "not a sequence of that length"
        found = (difference(left, right, relative, absolute) for left, right in zip(actual, expected))
        return next((each for each in found if each is not None), None)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        if not (actual.dtype.kind in "OUS" and expected.dtype.kind in "OUS" and actual.shape == expected.shape):
            return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind in "OUS":
        return None if np.array_equal(actual.astype(str), expected.astype(str)) else "other strings"
    if expected.dtype.kind in "iub":
        same = np.array_equal(actual, expected)
    else:
        same = _close(actual, expected, relative, absolute)
    if same:
        return None
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    left, right = actual.astype(kind), expected.astype(kind)
    with np.errstate(all="ignore"):
        return f"largest difference {np.nanmax(np.abs(left - right))} beside {np.nanmax(np.abs(right))}"


def _close(actual: np.ndarray, expected: np.ndarray, relative: float, absolute: float) -> bool:
    if expected.dtype.kind == "c":
        return bool(np.allclose(actual, expected, rtol=relative, atol=absolute, equal_nan=True))
    left, right = actual.astype(np.float64), expected.astype(np.float64)
    finite = right[np.isfinite(right)]
    largest = float(np.abs(finite).max(initial=0.0))
    try:
        unit = float(ml_dtypes.finfo(expected.dtype).eps)
    except (ValueError, TypeError):  # integers of fewer bits
        unit = 0.0
    return bool(np.allclose(left, right, rtol=relative, atol=max(absolute, unit * largest), equal_nan=True))
