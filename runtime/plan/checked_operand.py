"""Operands that hold indices, and are checked after a run."""

from __future__ import annotations

from .record import record

#: The output that tells the ranges of indices; its name is one that no ONNX file can contain
INDEX_RANGES = "\0index ranges"


@record(slots=False)
class CheckedOperand:
    """Input ``position`` of a node holds indices, which is ``tensor``."""

    node: str
    position: int
    tensor: str
