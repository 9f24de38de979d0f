"""The passes between expansion and layout, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...runtime.plan.device_profile import WEB, DeviceProfile
from ...runtime.plan.errors import InputError
from ..ir.graph import Graph
from ..ir.graph import verify as verify_graph
from ..rewriting.builder import DEFAULT_LIMITS, Limits
from ..rewriting.rules import Rule, Trace, apply_rules
from . import attention, padding, products, scales, siblings, simplify, views
from .common_subexpressions import eliminate_common_subexpressions
from .dead_code import remove_dead_code


@dataclass(frozen=True, slots=True)
class PassContext:
    """What a pass may use besides the graph."""

    limits: Limits = DEFAULT_LIMITS
    trace: Trace | None = None
    profile: DeviceProfile = WEB


@dataclass(frozen=True, slots=True)
class Pass:
    """``run`` changes the graph in place, leaves it sorted, and gives the number of changes."""

    name: str
    run: Callable[[Graph, PassContext], int]


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did."""

    name: str
    changes: int
    nodes: int  #: nodes left
    milliseconds: float


def _rules(name: str, rules: Sequence[Rule]) -> Pass:
    def run(graph: Graph, context: PassContext) -> int:
        return apply_rules(graph, rules, limits=context.limits, trace=context.trace)

    return Pass(name, run)


def _attention(graph: Graph, context: PassContext) -> int:
    rules = attention.rules(context.profile)
    return apply_rules(graph, rules, limits=context.limits, trace=context.trace)


#: Recognition of whole subgraphs that have a kernel family of their own (attention) stands between "simplify", which
#: brings views and constants into one form, and "scales", which moves factors out of the pattern.
PASSES: tuple[Pass, ...] = (
    Pass("dead-code", lambda graph, _: remove_dead_code(graph)),
    _rules("views", views.RULES),
    Pass("common-subexpressions", lambda graph, _: eliminate_common_subexpressions(graph)),
    _rules("simplify", simplify.RULES),
    Pass("attention", _attention),
    _rules("padding", padding.RULES),
    _rules("scales", scales.RULES),
    Pass("siblings", lambda graph, context: siblings.join_siblings(graph, context.limits, context.trace)),
    _rules("products", products.RULES + views.RULES),
    Pass("common-subexpressions-again", lambda graph, _: eliminate_common_subexpressions(graph)),
)

PASS_NAMES = tuple(each.name for each in PASSES)


def run_passes(
    graph: Graph,
    *,
    disabled: Iterable[str] = frozenset(),
    verify: bool = False,
    trace: Trace | None = None,
    on_pass: Callable[[PassReport, Graph], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    profile: DeviceProfile = WEB,
) -> None:
    """Run every pass but the ``disabled`` ones on an expanded graph.

    ``verify`` checks the invariants of the IR after each pass; ``trace`` collects the rules that matched; ``on_pass``
    is called after each pass with what it did.  Raises :class:`InputError` for a name that is no pass.
    """
    disabled = frozenset(disabled)
    unknown = sorted(disabled - set(PASS_NAMES))
    if unknown:
        raise InputError(f"there is no pass '{unknown[0]}'", hint=f"the passes are {', '.join(PASS_NAMES)}")
    context = PassContext(limits, trace, profile)
    for each in PASSES:
        if each.name in disabled:
            continue
        start = time.perf_counter()
        changes = each.run(graph, context)
        elapsed = (time.perf_counter() - start) * 1e3
        if verify:
            verify_graph(graph)
        if on_pass is not None:
            on_pass(PassReport(each.name, changes, len(graph.nodes), elapsed), graph)
