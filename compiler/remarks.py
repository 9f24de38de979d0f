"""Remarks: what the rewrites of a compilation did and refused, for people and tests."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.plan.errors import Origin
from ..runtime.plan.record import record


@record
class Remark:
    """A rule that matched, and why it was refused (None: it was applied)."""

    rule: str
    origins: Sequence[Origin]
    root: str  #: operator of the root of the match
    refused: str | None = None
