"""Runs of the models in a folder, of which each has a plan: what ``inspect`` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DecoderRun:
    """A run of ``model`` with inputs of ``shapes``; ``dynamic`` has the ranges of sizes that stay open."""

    title: str
    model: Path
    shapes: Mapping[str, tuple[int, ...]]
    dynamic: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def tokens_title(tokens: int) -> str:
    """Return how runs of so many tokens are called."""
    return f"runs of {tokens} token{'' if tokens == 1 else 's'}"
