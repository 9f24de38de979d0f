"""Forward dataflow analysis: values that out-of-range constants may push beyond float16, whatever the inputs are.

Exporters write masks as sums with -3.4e38 or products with 1e9.  No run on sample inputs shows them if the sample masks
nothing, so they are looked for in the graph: a constant beyond the range flags every value that arithmetic can carry it
to.  A bound of a Clip, the argument of an exponential or a divisor carries nothing.  Inputs count as ordinary numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...runtime.plan.dtypes import FLOAT32
from ..ir.graph import Graph, Node, Value
from ..kernels.family import OverflowFlags, family_of
from ..ops.registry import registry
from ..symbolic import expr as ex
from ..symbolic.expr import Expr
from .constant_ranges import ValueRange, source_range

IN_RANGE: OverflowFlags = (False, False)

#: functions whose results lie in the range for every argument, or follow a divisor or an angle
_BOUNDED = frozenset("sign sin cos tan asin acos atan tanh erf not isnan isinf log asinh acosh atanh".split())
#: operators in which a constant decides about elements and is none of them
_SAME = frozenset("floor ceil round trunc cast fmod round_float16 round_bfloat16".split())


def overflowing_values(
    graph: Graph,
    limit: float,
    inputs: Mapping[Value, OverflowFlags] | None = None,
    constants: Iterable[Value] | None = None,
) -> dict[Value, OverflowFlags]:
    """Return the values of floats that a float32 constant may carry beyond ``limit``, in a sorted graph.

    ``inputs`` of the graph may lie there, too.  All constants are read, or ``constants`` alone.
    """
    flagged = {value: flags for value, flags in (inputs or {}).items() if flags != IN_RANGE}
    for value in graph.constants if constants is None else constants:
        if value.dtype is FLOAT32 and value.constant is not None and value.elements != 0:
            flags = _of_range(source_range(value.constant), limit)
            if flags != IN_RANGE:
                flagged[value] = flags
    for node in graph.nodes:
        flags = _of_node(node, flagged, limit)
        if flags != IN_RANGE:
            flagged.update((value, flags) for value in node.outputs if value.dtype.is_float)
    return flagged


def overflowing_outputs(
    outputs: Iterable[tuple[str, Value]], overflow: Mapping[Value, OverflowFlags]
) -> dict[str, OverflowFlags]:
    """Return the named outputs that may lie beyond the limit; of windows of one output any does."""
    flags: dict[str, OverflowFlags] = {}
    for name, value in outputs:
        if value in overflow:
            (below, above), (other_below, other_above) = overflow[value], flags.get(name, IN_RANGE)
            flags[name] = (below or other_below, above or other_above)
    return flags


def _of_range(values: ValueRange, limit: float) -> OverflowFlags:
    return values.low < -limit, values.high > limit


def _of_node(node: Node, flagged: Mapping[Value, OverflowFlags], limit: float) -> OverflowFlags:
    definition = registry.of(node)
    if not node.outputs or not node.outputs[0].dtype.is_float:
        return IN_RANGE
    operands = [flagged.get(value, IN_RANGE) for value in node.inputs if value is not None]
    if definition.element is not None:
        arguments = [
            ex.register(f"x{position}", value.dtype.compute)
            for position, value in enumerate(value for value in node.inputs if value is not None)
        ]
        registers = {f"x{position}": flags for position, flags in enumerate(operands)}
        return expression_overflow(definition.element(node, arguments), registers, limit)
    if definition.gather is not None:
        return _either(tuple(operands))
    family = family_of(node)
    return _anywhere(tuple(operands)) if family is None else family.overflow(node, operands)


def expression_overflow(value: Expr, registers: Mapping[str, OverflowFlags], limit: float) -> OverflowFlags:
    """Return whether the value of an expression may be out of range, given which of its registers may be."""

    def visit(node: Expr, args: tuple[OverflowFlags, ...]) -> OverflowFlags:
        if node.op == "const":
            number = float(node.payload)
            return (-float("inf") < number < -limit, limit < number < float("inf"))
        if node.op == "register":
            return registers.get(node.payload, IN_RANGE)
        if not args or node.op in _BOUNDED or node.op in ex.COMPARISONS:
            return IN_RANGE
        if node.op == "select":
            kind = _choice(node)
            return _RULES[kind](args[1:]) if kind else _either(args[1:])
        return _RULES.get(node.op, _anywhere)(args)

    return ex.fold(value, visit)


def _choice(node: Expr) -> str:
    """Return ``max`` or ``min`` if a select takes the larger or the smaller of its values (or a NaN), else ""."""
    condition, chosen, other = node.args
    tests = condition.args if condition.op == "or" else (condition,)
    for test in tests:
        if test.op not in ("lt", "le", "gt", "ge") or {chosen, other} != set(test.args):
            continue
        takes_left = chosen is test.args[0]
        return "max" if takes_left == (test.op in ("gt", "ge")) else "min"
    return ""


def _anywhere(args: tuple[OverflowFlags, ...]) -> OverflowFlags:
    flagged = any(low or high for low, high in args)
    return flagged, flagged


def _either(args: tuple[OverflowFlags, ...]) -> OverflowFlags:
    return any(low for low, _ in args), any(high for _, high in args)


_RULES: dict[str, Callable[[tuple[OverflowFlags, ...]], OverflowFlags]] = {
    "add": _either,
    "sub": lambda args: (args[0][0] or args[1][1], args[0][1] or args[1][0]),
    "neg": lambda args: (args[0][1], args[0][0]),
    "abs": lambda args: (False, args[0][0] or args[0][1]),
    "exp": lambda args: (False, args[0][1]),
    "sqrt": lambda args: (False, args[0][1]),
    "div": lambda args: _anywhere(args[:1]),
    "max": lambda args: (args[0][0] and args[1][0], args[0][1] or args[1][1]),
    "min": lambda args: (args[0][0] or args[1][0], args[0][1] and args[1][1]),
    "guard": lambda args: _either(args[1:]),
    **{name: lambda args: args[0] for name in _SAME},
}
