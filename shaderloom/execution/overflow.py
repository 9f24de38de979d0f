"""Runs whose outputs are not finite although their inputs are: they call for a calibration, once.

Only arrays that a run reads back are looked at, and only of models that have halves: a run of float32 costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..notices import notify
from ..runtime.execution.attachment import Target
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import ShaderloomError

#: Elements that are looked at together: they stay in the processor's cache
_CHUNK = 1 << 16
#: For each float: an unsigned integer of its width, and the bits of its exponent
_EXPONENTS = {
    "float16": (np.uint16, 0x7C00),
    "bfloat16": (np.uint16, 0x7F80),
    "float32": (np.uint32, 0x7F800000),
    "float64": (np.uint64, 0x7FF0000000000000),
}
#: Shapes of the inputs by name
_Shapes = tuple[tuple[str, tuple[int, ...]], ...]
#: Names of outputs that are not finite, and whether they hold NaN
_Kinds = frozenset[tuple[str, bool]]
#: Kinds of outputs for which a calibration has changed nothing; all are dropped beyond
_SETTLED = 256


class OverflowWatch:
    """Tells runs that call for a calibration from those whose outputs are infinite by the model's own doing."""

    def __init__(self) -> None:
        self._settled: set[tuple[_Shapes, _Kinds]] = set()

    def recalibrate(
        self,
        calibrate: Callable[[Mapping[str, Any]], bool],
        feeds: Mapping[str, Any],
        targets: Mapping[str, Target],
        results: Mapping[str, Any],
    ) -> bool:
        """Calibrate with ``feeds`` if the ``results`` of a run are not finite; return whether to repeat it.

        ``calibrate`` returns whether plans depend on other magnitudes then.  It is called once for outputs of one kind:
        an output that is infinite in any plan is not looked at again.
        """
        if not self._is_suspicious(feeds, targets, results):
            return False
        try:
            if calibrate(feeds):
                return True
        except ShaderloomError as error:
            notify(f"an output is not finite, and what overflows cannot be measured: {error}", once=f"widen {error}")
        self.settle(feeds, results)
        return False

    def settle(self, feeds: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Ask for no further calibration for inputs of these shapes and outputs like these."""
        if len(self._settled) >= _SETTLED:
            self._settled.clear()
        self._settled.add((_shapes(feeds), _kinds(results)))

    def _is_suspicious(
        self, feeds: Mapping[str, Any], targets: Mapping[str, Target], results: Mapping[str, Any]
    ) -> bool:
        """Return whether outputs are not finite, which no earlier calibration explains, nor an input.

        An input may hold minus infinity, as masks do.  A run that has overwritten an input is not suspicious: it cannot
        be repeated.
        """
        kinds = _kinds(results)
        if not kinds or (_shapes(feeds), kinds) in self._settled:
            return False
        written = {target._storage.gpu.uid for target in targets.values() if isinstance(target, Tensor)}
        read = {feed._storage.gpu.uid for feed in feeds.values() if isinstance(feed, Tensor)}
        return not written & read and all(map(_is_ordinary, feeds.values()))


def _shapes(feeds: Mapping[str, Any]) -> _Shapes:
    return tuple((name, getattr(feed, "shape", ())) for name, feed in feeds.items())


def _kinds(results: Mapping[str, Any]) -> _Kinds:
    """Return the arrays that are not finite: their names, and whether they hold NaN."""
    return frozenset(
        (name, bool(np.isnan(array.astype(np.float32)).any()))
        for name, array in results.items()
        if isinstance(array, np.ndarray) and not is_finite(array)
    )


def is_finite(array: np.ndarray) -> bool:
    """Return whether an array has no NaN and no infinity, by the exponents of its elements."""
    kind = _EXPONENTS.get(array.dtype.name)
    if kind is None:
        return True
    bits, mask = np.ascontiguousarray(array).reshape(-1).view(kind[0]), kind[0](kind[1])
    return not any((bits[start : start + _CHUNK] & mask).max() == mask for start in range(0, bits.size, _CHUNK))


def _is_ordinary(feed: Any) -> bool:
    array = feed.numpy() if isinstance(feed, Tensor) else feed
    if not isinstance(array, np.ndarray) or is_finite(array):
        return True
    return not np.isnan(array.astype(np.float32)).any() and bool((array < np.inf).all())
