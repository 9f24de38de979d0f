"""Where the outputs of a run go: a location, a tensor or an array of the caller's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import InputError


def output_targets(
    names: Sequence[str], memory: Mapping[str, Tensor | np.ndarray | str] | None, locations: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the target of each output that is asked for, and the arrays that :func:`fill` fills.

    ``locations`` has where each output of the model goes by itself.  Raises :class:`InputError` for names that are not
    there.
    """
    targets: dict[str, Any] = {}
    for name in names:
        if name not in locations:
            raise InputError(f"the model has no output '{name}'", hint=f"its outputs are {', '.join(locations)}")
        targets[name] = locations[name]
    if memory is not None and not isinstance(memory, Mapping):
        raise InputError(
            f"outputs is a dict of memory or locations by the name of an output, not {memory!r:.80}",
            hint="names alone are output_names",
        )
    arrays: dict[str, np.ndarray] = {}
    for name, place in (memory or {}).items():
        if name not in targets:
            raise InputError("memory was given for an output that was not asked for", tensor=name)
        if isinstance(place, np.ndarray):
            targets[name], arrays[name] = "cpu", place
        else:
            targets[name] = place
    return targets, arrays


def fill(name: str, array: np.ndarray, result: np.ndarray) -> np.ndarray:
    """Write a result into the caller's array, and return that; raise :class:`InputError` if it has another form."""
    if array.dtype != result.dtype or array.shape != result.shape:
        raise InputError(
            f"the array for the output is {array.dtype.name}{list(array.shape)}, "
            f"the result {result.dtype.name}{list(result.shape)}",
            tensor=name,
        )
    np.copyto(array, result)
    return array
