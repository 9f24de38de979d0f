"""Validation of plans that come from outside: everything that a plan names exists, and fits.

The executor checks ranges against buffers before it binds them; this catches what would fail later or in another way.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .dimension import DimExpr
from .dtypes import BY_NAME
from .plan import Plan

#: operators of a dimension that take two operands
_BINARY = ("//", "%", "min", "max")


def check_plan(plan: Plan) -> None:
    """Raise :class:`ValueError` with the first reason why the plan cannot run."""
    symbols = [symbol.name for symbol in plan.symbols]
    if len(set(symbols)) != len(symbols):
        raise ValueError("its symbols are ambiguous")
    for symbol in plan.symbols:
        if symbol.step < 1 or not 0 <= symbol.low <= symbol.high or (symbol.high - symbol.low) % symbol.step:
            raise ValueError(f"the range of its symbol '{symbol.name}' has no size, or does not end with one")

    def dim(value: DimExpr, location: str) -> None:
        _check_dim(value, set(symbols), location)

    for port in (*plan.inputs, *plan.outputs):
        if port.dtype not in BY_NAME or not BY_NAME[port.dtype].on_device:
            raise ValueError(f"'{port.name}' has type '{port.dtype}', which no device holds")
        for size in port.shape:
            dim(size, f"the shape of '{port.name}'")
    declared = {size for port in plan.inputs for size in port.shape if isinstance(size, str)}
    for name in symbols:
        if name not in declared:
            raise ValueError(f"no input has '{name}' as a dimension")
    for size in plan.arenas:
        dim(size, "an arena")
    _check_calls(plan, dim)
    _check_outputs(plan, dim)


def _check_dim(value: DimExpr, symbols: set[str], location: str) -> None:
    stack: list[DimExpr] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if item not in symbols:
                raise ValueError(f"{location} depends on '{item}', which is no symbol of the plan")
        elif not isinstance(item, int):
            operator, *operands = item
            if operator in _BINARY and len(operands) != 2:
                raise ValueError(f"{location} has a '{operator}' of {len(operands)} operands")
            if operator in ("//", "%") and not (isinstance(operands[1], int) and operands[1] > 0):
                raise ValueError(f"{location} divides by something else than a positive number")
            stack.extend(operands)


def _check_calls(plan: Plan, dim: Callable[[DimExpr, str], None]) -> None:
    kernels = {kernel.key: kernel for kernel in plan.kernels}
    buffers = _buffers(plan)
    for kernel in plan.kernels:
        if any(binding.access not in ("read", "read_write", "uniform") for binding in kernel.bindings):
            raise ValueError(f"kernel {kernel.id} has a binding of unknown access")
    for call in plan.calls:
        location = f"call '{call.label}'"
        if call.kernel not in kernels:
            raise ValueError(f"{location} names a kernel that the plan does not have")
        kernel = kernels[call.kernel]
        if len(kernel.bindings) != len(call.ranges):
            raise ValueError(f"{location} binds {len(call.ranges)} ranges to {len(kernel.bindings)} bindings")
        for size in call.grid:
            dim(size, location)
            if isinstance(size, int) and size < 0:
                raise ValueError(f"{location} has {size} workgroups")
        for span in call.ranges:
            if span.buffer not in buffers:
                raise ValueError(f"{location} binds '{span.buffer}', which the plan does not have")
            dim(span.offset, location)
            dim(span.size, location)


def _check_outputs(plan: Plan, dim: Callable[[DimExpr, str], None]) -> None:
    outputs = {port.name: port for port in plan.outputs}
    buffers = _buffers(plan)
    for constant in plan.constants:
        source = constant.source
        if constant.output not in outputs or source.dtype not in BY_NAME or source.data is None:
            raise ValueError(f"the constant output '{constant.output}' is none of the plan's")
        if len(source.data) != math.prod(source.shape) * BY_NAME[source.dtype].itemsize:
            raise ValueError(f"the constant output '{constant.output}' has a wrong size")
    targets = {alias.output: alias.source for alias in plan.aliases}
    for alias in plan.aliases:
        dim(alias.size, f"output '{alias.output}'")
        if alias.output not in outputs or alias.source not in buffers:
            raise ValueError(f"output '{alias.output}' is an alias of '{alias.source}', which the plan does not have")
    for name in targets:
        seen = {name}
        while name in targets:
            name = targets[name].removeprefix("output:")
            if name in seen:
                raise ValueError(f"output '{name}' is an alias of itself")
            seen.add(name)


def _buffers(plan: Plan) -> set[str]:
    """Return every buffer that a call or an alias may name."""
    return {
        *(f"input:{port.name}" for port in plan.inputs),
        *(f"output:{port.name}" for port in plan.outputs),
        *(f"arena:{number}" for number in range(len(plan.arenas))),
        *(f"weight:{weight.key}" for weight in plan.weights),
        *(["symbols"] if plan.symbols else []),
    }
