"""The option ``check_indices``: a run fails if an index of it was out of range; opening warns of those left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..notices import notify
from ..runtime.plan.checked_operand import CheckedOperand
from ..runtime.plan.errors import RunError


def check_ranges(operands: Sequence[CheckedOperand], ranges: np.ndarray) -> None:
    """Raise :class:`RunError` for the first operand that holds an index out of range.

    Rows of ``ranges`` are the number of an operand, its smallest and largest index, and the least and the greatest that
    are in range.
    """
    for number, low, high, least, greatest in ranges.tolist():
        if low > high or (least <= low and high <= greatest):
            continue
        operand = operands[number]
        raise RunError(
            f"{operand.node}: indices element out of data bounds, idx={low if low < least else high} must be within "
            f"the inclusive range [{least},{greatest}] (input {operand.position})",
            tensor=operand.tensor,
            hint="'shaderloom check' tells where in the tensor it is",
        )


def warn_of_unchecked(nodes: Sequence[str], severity: int) -> None:
    """Warn that indices of ``nodes`` are clamped all the same; of many nodes it names the first."""
    if nodes:
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        notify(
            f"check_indices does not reach {nodes[0]}{more}: indices there are clamped on the device; "
            "providers=['cpu'] checks them, and 'shaderloom check' finds what they change",
            severity=severity,
        )
