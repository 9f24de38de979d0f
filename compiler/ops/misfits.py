"""Errors for operands that an operator's rules stumble over, because nothing says that they may not be so.

The standard states the rank of an operand, and how its sizes relate to others, in prose.  Each operator checks what
models get wrong; the rest ends here, as an error of the model rather than of this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...runtime.plan.errors import Origin, ShaderloomError, ShapeError
from ..ir.graph import Value
from ..symbolic import polynomial as ix
from . import checks

HINT = "onnx.checker.check_model(model, full_check=True) tells more; report it with the model if that finds no fault"


def misfit(op: str, inputs: Sequence[Value | None], reason: str, origin: Origin | None) -> ShapeError:
    """Return the error for the operands of a node; ``reason`` is what they lead to."""
    operands = [
        "none" if value is None else f"{value.dtype.name} {checks.describe_shape(value.shape)}" for value in inputs
    ]
    return ShapeError(f"{op} cannot take the operands {', '.join(operands)}: {reason}", origin=origin, hint=HINT)


@contextmanager
def refused_misfits(op: str, inputs: Sequence[Value | None], origin: Origin | None) -> Iterator[None]:
    """Raise :class:`ShapeError` for what fails in the rules of an operator; own errors get the ``origin``."""
    try:
        yield
    except ShaderloomError as error:
        error.origin = error.origin or origin
        raise
    except ix.Undecidable:
        raise
    except Exception as error:
        raise misfit(op, inputs, f"{type(error).__name__}: {error}", origin) from error
