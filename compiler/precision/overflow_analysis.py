"""Which values constants carry beyond the range of float16, whatever the inputs are.

Exporters write masks as sums with -3.4e38 or products with 1e9.  No run on sample inputs shows them if the sample hides
nothing, so they are found in the graph: a constant beyond the range marks every value that arithmetic can carry it to.
A bound of a Clip, the argument of an exponential or a divisor does not carry.  Inputs and weights count as ordinary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...runtime.plan.dtypes import FLOAT32
from ..ir.graph import Graph, Node, Value
from ..kernels.family import Overflow, family_of
from ..ops.registry import registry
from ..symbolic import expr as ex
from ..symbolic.expr import Expr
from .constant_ranges import Extremes, source_extremes

NOWHERE: Overflow = (False, False)

#: functions whose results lie in the range for every argument, or follow a divisor or an angle
_BOUNDED = frozenset("sign sin cos tan asin acos atan tanh erf not isnan isinf log asinh acosh atanh".split())
#: operators in which a constant decides about elements and is none of them
_SAME = frozenset("floor ceil round trunc cast fmod".split())


def far_values(graph: Graph, limit: float, inputs: Mapping[Value, Overflow] | None = None) -> dict[Value, Overflow]:
    """The float32 values that a constant carries beyond ``limit``; the graph must be sorted.

    ``inputs`` of the graph may lie there, too.
    """
    found: dict[Value, Overflow] = dict(inputs or {})
    for value in graph.constants:
        if value.dtype is FLOAT32 and value.constant is not None and value.elements != 0:
            reach = _of(source_extremes(value.constant), limit)
            if reach != NOWHERE:
                found[value] = reach
    for node in graph.nodes:
        reach = _node_reach(node, found, limit)
        if reach != NOWHERE:
            found.update((value, reach) for value in node.outputs if value.dtype is FLOAT32)
    return found


def _of(extremes: Extremes, limit: float) -> Overflow:
    return extremes.low < -limit, extremes.high > limit


def _node_reach(node: Node, found: Mapping[Value, Overflow], limit: float) -> Overflow:
    definition = registry.of(node)
    if not node.outputs or node.outputs[0].dtype is not FLOAT32:
        return NOWHERE
    operands = [found.get(value, NOWHERE) for value in node.inputs if value is not None]
    if definition.element is not None:
        arguments = [
            ex.register(f"x{position}", value.dtype.compute)
            for position, value in enumerate(value for value in node.inputs if value is not None)
        ]
        registers = {f"x{position}": reach for position, reach in enumerate(operands)}
        return expression_reach(definition.element(node, arguments), registers, limit)
    if definition.gather is not None:
        return _either(tuple(operands))
    family = family_of(node)
    return _anywhere(tuple(operands)) if family is None else family.overflow(node, operands)


def expression_reach(value: Expr, registers: Mapping[str, Overflow], limit: float) -> Overflow:
    """Where an expression's value may lie if its registers lie there."""

    def visit(node: Expr, args: tuple[Overflow, ...]) -> Overflow:
        if node.op == "const":
            number = float(node.payload)
            return (-float("inf") < number < -limit, limit < number < float("inf"))
        if node.op == "register":
            return registers.get(node.payload, NOWHERE)
        if not args or node.op in _BOUNDED or node.op in ex.COMPARISONS:
            return NOWHERE
        if node.op == "select":
            kind = _choice(node)
            return _RULES[kind](args[1:]) if kind else _either(args[1:])
        return _RULES.get(node.op, _anywhere)(args)

    return ex.fold(value, visit)


def _choice(node: Expr) -> str:
    """``max`` or ``min`` if a select takes the larger or the smaller of its values (or one that is NaN), else ""."""
    condition, chosen, other = node.args
    tests = condition.args if condition.op == "or" else (condition,)
    for test in tests:
        if test.op not in ("lt", "le", "gt", "ge") or {chosen, other} != set(test.args):
            continue
        takes_left = chosen is test.args[0]
        return "max" if takes_left == (test.op in ("gt", "ge")) else "min"
    return ""


def _anywhere(args: tuple[Overflow, ...]) -> Overflow:
    far = any(low or high for low, high in args)
    return far, far


def _either(args: tuple[Overflow, ...]) -> Overflow:
    return any(low for low, _ in args), any(high for _, high in args)


_RULES: dict[str, Callable[[tuple[Overflow, ...]], Overflow]] = {
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
