"""Distances between tensors, the positions of their largest errors, and counts of non-finite elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.plan.record import record

#: Least tolerances by element type: largest error over largest expected magnitude.  Integers must be equal
TOLERANCES = {"float64": 1e-4, "float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}
#: Larger magnitudes are minus infinity in masks; they do not set the scale of the others
MASK = 1e30
#: The last number but one of float16: from here on a number within one step of another may be infinite
LAST_STEP = 65472.0
#: Multiple of the difference between two correct computations of a tensor that is allowed
SPREAD_FACTOR = 4.0


@record
class Element:
    """One differing element."""

    index: tuple[int, ...]
    got: Any
    expected: Any


@record(slots=False)
class Difference:
    """``error``: largest error over largest expected magnitude; infinite where a non-finite element differs."""

    error: float
    tolerance: float
    worst: tuple[Element, ...]
    reason: str = ""  #: differences other than in elements

    @property
    def is_close(self) -> bool:
        return self.error <= self.tolerance


def compare(
    got: np.ndarray,
    expected: np.ndarray,
    *,
    tolerance: float | None = None,
    other: np.ndarray | None = None,
    moved: tuple[np.ndarray, np.ndarray] | None = None,
    count: int = 5,
) -> Difference:
    """Compare two tensors with the tolerance of the element types, that of the coarser one, or with ``tolerance``.

    ``other`` is the expected tensor computed another way, ``moved`` the tensor computed in two correct ways: four times
    the distance of the two is allowed in any case.
    """
    got, expected = _texts_as_objects(got), _texts_as_objects(expected)
    if got.shape != expected.shape:
        return Difference(float("inf"), 0.0, (), f"shape {list(got.shape)} instead of {list(expected.shape)}")
    if got.dtype != expected.dtype and not (_is_float(got) and _is_float(expected)):
        return Difference(float("inf"), 0.0, (), f"type {got.dtype} instead of {expected.dtype}")
    allowed = max(TOLERANCES.get(each.dtype.name, 0.0) for each in (got, expected)) if tolerance is None else tolerance
    for one, two in (*([] if other is None else [(other, expected)]), *([] if moved is None else [moved])):
        if one.shape == two.shape == expected.shape:
            spread = float(_relative(one, two).max(initial=0.0))
            if np.isfinite(spread):
                allowed = max(allowed, SPREAD_FACTOR * spread)
    errors = _relative(got, expected)
    error = float(errors.max(initial=0.0))
    if error <= allowed:
        return Difference(error, allowed, ())
    flat = errors.reshape(-1)
    order = np.argsort(-flat, kind="stable")[:count]
    worst = tuple(
        Element(
            tuple(int(axis) for axis in np.unravel_index(int(position), errors.shape)),
            _plain(got.reshape(-1)[position]),
            _plain(expected.reshape(-1)[position]),
        )
        for position in order
        if flat[position] > allowed
    )
    return Difference(error, allowed, worst)


def _texts_as_objects(array: np.ndarray) -> np.ndarray:
    """Normalise string arrays to dtype object: runtimes return objects, files store fixed-width characters."""
    return array.astype(object) if array.dtype.kind in "UT" else array


def _plain(element: Any) -> Any:
    return element.item() if isinstance(element, np.generic) else element


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.name.startswith(("float", "bfloat"))


def _relative(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return each element's error relative to the largest finite expected magnitude; for integers 0 or infinity.

    Elements whose magnitude exceeds ``MASK`` are relative to their own, and do not count for the largest.  Where
    float16 is expected, infinity is what lies beyond the last step of its range.
    """
    if not _is_float(expected):
        return np.where(got == expected, 0.0, np.inf)
    left, right = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    if expected.dtype.name == "float16":
        beyond = (np.abs(left) >= LAST_STEP) & (np.abs(right) >= LAST_STEP) & (np.sign(left) == np.sign(right))
        same |= beyond & ~(finite & np.isfinite(left))
    magnitude = np.abs(right)
    mask = magnitude > MASK
    with np.errstate(invalid="ignore", over="ignore"):
        scale = max(float(magnitude[finite & ~mask].max(initial=0.0)), 1e-30)
        errors = np.abs(left - right) / np.where(mask, magnitude, scale)
    return np.where(same, 0.0, np.where(finite & np.isfinite(left), errors, np.inf))


@record
class NotFinite:
    """Counts of NaN and of infinite elements."""

    nan: int
    infinite: int

    def __str__(self) -> str:
        parts = [f"{self.nan} NaN"] * bool(self.nan) + [f"{self.infinite} infinite"] * bool(self.infinite)
        return " and ".join(parts)


def not_finite(array: np.ndarray) -> NotFinite | None:
    """Count NaN and infinite elements; return None if all elements are finite."""
    if not _is_float(array):
        return None
    values = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    nan, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    return NotFinite(nan, infinite) if nan or infinite else None
