"""Refuse WGSL that is known to kill the process inside wgpu-native before it gets there.

Measured on wgpu-native 29: 5,000 nested parentheses, 2,900 nested types and 20,000 ``+`` terms in one expression
overflow the stack of the parser; 2,000, 2,500 and 12,000 are fine.  The bounds are half of what is known to work, or
less.  Array values of 2^22 scalars, private variables of 2^17 and calls that inline 2^25 functions end the process or
take hours.  The bound of arrays is what WGSL promises of memory in a function, 8,192 bytes; shaders of the compiler
have a hundredth of either.
"""

from __future__ import annotations

import re

from ..plan.errors import LimitError
from .wgsl_plain import is_plain
from .wgsl_values import TooLargeError, check_values

MAX_NESTING = 1_000
MAX_OPERATORS = 6_000
#: scalars of all arrays and structs that a shader makes as values or has as private variables
MAX_SCALARS = 1 << 11
#: tokens of a shader once its functions are inlined
MAX_INLINED = 1 << 18

_OPERATORS = re.compile(r"[-+*/%&|^<>=!~]")
_COMMENT = re.compile(r"//[^\n\v\f\r\x85\u2028\u2029]*|/\*")
_BLOCK = re.compile(r"/\*|\*/")


def check_size(wgsl: str, max_bytes: int, label: str) -> None:
    """Raise :class:`LimitError` if the text is longer than the caller allows."""
    if len(wgsl) > max_bytes:
        raise LimitError(
            f"the shader of {label} has {len(wgsl):,} characters; the cap is {max_bytes:,}",
            hint="raise caps.wgsl_bytes",
        )


def check(wgsl: str, max_bytes: int, label: str) -> None:
    """Raise :class:`LimitError` if the text is too long, nests too deeply, or expands too far."""
    check_size(wgsl, max_bytes, label)
    text = without_comments(wgsl)
    if sum(map(text.count, "({[")) > MAX_NESTING:
        depth = 0
        for bracket in re.findall(r"[(){}\[\]]", text):
            depth += 1 if bracket in "({[" else -1
            if depth > MAX_NESTING:
                raise LimitError(f"the shader of {label} nests deeper than {MAX_NESTING} levels")
    is_short = len(text) <= MAX_OPERATORS and text.count("<") <= MAX_NESTING  # in all, so in every statement
    for statement in () if is_short else re.split(r"[;{}]", text):
        if len(statement) > MAX_OPERATORS and len(_OPERATORS.findall(statement)) > MAX_OPERATORS:
            raise LimitError(f"the shader of {label} has an expression of more than {MAX_OPERATORS:,} operators")
        if statement.count("<") > MAX_NESTING:
            raise LimitError(f"the shader of {label} has an expression of more than {MAX_NESTING:,} '<'")
    if not text.isascii():
        raise LimitError(f"the shader of {label} has letters beyond ASCII outside of comments")
    if is_plain(text, MAX_SCALARS, MAX_INLINED):
        return
    try:
        check_values(text, MAX_SCALARS, MAX_INLINED)
    except TooLargeError as error:
        raise LimitError(f"the shader of {label} {error}") from None


def without_comments(wgsl: str) -> str:
    """Return a text with a space for each comment; comments in ``/* */`` nest."""
    pieces, position = [], 0
    while comment := _COMMENT.search(wgsl, position):
        pieces.append(wgsl[position : comment.start()])
        position, depth = comment.end(), int(comment[0] == "/*")
        while depth:
            bracket = _BLOCK.search(wgsl, position)
            if bracket is None:
                return " ".join(pieces)
            depth += 1 if bracket[0] == "/*" else -1
            position = bracket.end()
    return " ".join([*pieces, wgsl[position:]])
