"""Refuse WGSL that is known to kill the process inside wgpu-native before it gets there.

Measured on wgpu-native 29: 5,000 nested parentheses and 20,000 ``+`` terms in one expression overflow the stack of the
parser; 2,000 and 12,000 are fine.  The bounds here are half of what is known to work.
"""

from __future__ import annotations

import re

from ..plan.errors import LimitError

MAX_NESTING = 1_000
MAX_OPERATORS = 6_000

_OPERATORS = re.compile(r"[-+*/%&|^<>=!~]")
_COMMENTS = re.compile(r"//[^\n]*")


def check_size(wgsl: str, max_bytes: int, label: str) -> None:
    """Raise :class:`LimitError` if the text is longer than the caller allows."""
    if len(wgsl) > max_bytes:
        raise LimitError(
            f"the shader of {label} has {len(wgsl):,} characters; the cap is {max_bytes:,}",
            hint="raise caps.wgsl_bytes",
        )


def check(wgsl: str, max_bytes: int, label: str) -> None:
    """Raise :class:`LimitError` if the text is too long, nested too deeply, or holds too long an expression."""
    check_size(wgsl, max_bytes, label)
    text = _COMMENTS.sub("", wgsl)
    depth = 0
    for bracket in re.findall(r"[(){}\[\]]", text):
        depth += 1 if bracket in "({[" else -1
        if depth > MAX_NESTING:
            raise LimitError(f"the shader of {label} nests deeper than {MAX_NESTING} levels")
    for statement in re.split(r"[;{}]", text):
        if len(statement) > MAX_OPERATORS and len(_OPERATORS.findall(statement)) > MAX_OPERATORS:
            raise LimitError(f"the shader of {label} has an expression of more than {MAX_OPERATORS:,} operators")
