"""Along which axes the rows of a batch lie."""

from __future__ import annotations

from collections.abc import Mapping

from .record import record


@record(slots=False)
class BatchPorts:
    """The axes along which the rows of a batch lie, of inputs that have rows, and of all outputs, by name."""

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
