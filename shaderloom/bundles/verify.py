"""Check that a bundle's plans reproduce its samples on this device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..runtime.bundle.reader import Sample
from ..runtime.plan.dtypes import EXTENSIONS, from_numpy
from ..runtime.plan.record import record
from .session import BundleSession


@record(slots=False)
class Comparison:
    """The comparison of one output of one sample.  ``reason`` describes the difference, None if there is none."""

    sample: str  #: file of the sample
    output: str
    error: float  #: largest difference over the largest expected magnitude (at least 1)
    reason: str | None


def verify_samples(session: BundleSession) -> Iterator[Comparison]:
    """Run every sample and compare every output."""
    for sample_record in session.bundle.manifest.samples:
        sample = session.bundle.sample(sample_record)
        names = list(sample.outputs)
        for name, actual in zip(names, session.run(names, sample.inputs)):
            yield compare(sample, name, actual)


def compare(sample: Sample, name: str, actual: np.ndarray) -> Comparison:
    """Compare ``actual`` with the expected output ``name``."""
    expected = sample.outputs[name]
    error, reason = 0.0, None
    if expected.dtype == np.uint8 and actual.dtype.itemsize == 1 and from_numpy(actual.dtype).name in EXTENSIONS:
        actual = actual.view(np.uint8)  # files of samples have the bytes of types that their format lacks
    if (actual.dtype.name, actual.shape) != (expected.dtype.name, expected.shape):
        error = float("inf")
        reason = f"is {actual.dtype.name}{list(actual.shape)} instead of {expected.dtype.name}{list(expected.shape)}"
    elif expected.dtype.kind in "iub":
        wrong = int(np.count_nonzero(actual != expected))
        if wrong:
            error, reason = float("inf"), f"differs in {wrong} of {expected.size} elements"
    else:
        error, reason = _compare_floats(actual.astype(np.float64), expected.astype(np.float64), sample.record.tolerance)
    return Comparison(sample.record.file, name, error, reason)


def _compare_floats(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> tuple[float, str | None]:
    finite = np.isfinite(expected)
    other = np.count_nonzero(~finite & ~((actual == expected) | (np.isnan(actual) & np.isnan(expected))))
    other += np.count_nonzero(finite & ~np.isfinite(actual))
    if other:
        return float("inf"), f"differs in {other} elements that are not finite"
    if not finite.any():
        return 0.0, None
    error = float(np.abs(actual[finite] - expected[finite]).max() / max(float(np.abs(expected[finite]).max()), 1.0))
    return error, None if error <= tolerance else f"differs by {error:.3g} of its largest magnitude"
