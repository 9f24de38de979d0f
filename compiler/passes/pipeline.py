"""The compiler: every pass from an imported graph to a plan, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...runtime.plan.dtypes import FLOAT16, FLOAT32
from ...runtime.plan.facts import PlanFacts, PrecisionFacts
from ...runtime.plan.notes import PlanNotes
from ..compilation import Compilation
from ..fusion import fuse
from ..ir.graph import Graph
from ..planning.compilation_facts import fusion_refusals, node_placements
from ..planning.plan_builder import Planner
from ..planning.states import declare_states
from ..precision.declared_halves import declare_storage, restore_halves, widen_halves
from ..precision.float16_storage import store_halves
from ..precision.wide_tensors import widen_tensors
from ..rewriting.rules import Rule, apply_rules
from ..symbolic.dimensions import dimension_variable
from . import (
    attention,
    byte_convolutions,
    byte_products,
    byte_ranges,
    packed_products,
    padding,
    products,
    requantise,
    scales,
    siblings,
    simplify,
    views,
)
from .common_subexpressions import eliminate_common_subexpressions
from .dead_code import remove_dead_code
from .expand import expand
from .large_tensors.division import divide_large_tensors
from .large_tensors.ports import output_dtype
from .layout import assign_layouts
from .lowering import Lowering
from .manager import Pass, PassFunction, PassManager
from .operands import limit_operands
from .rows import select_rows
from .split import split_products
from .tied_weights import share_tied_weights
from .weights import relayout_weights
from .winograd import winograd_rule


def _on_graph(run: Callable[[Graph], int]) -> PassFunction:
    """Return a pass that needs the graph alone."""
    return lambda lowering, _: run(lowering.graph)


def _rewrite(run: Callable[[Graph, Compilation], int]) -> PassFunction:
    """Return a pass that changes the graph in the context of the compilation."""
    return lambda lowering, compilation: run(lowering.graph, compilation)


def _rules(rules: Sequence[Rule]) -> PassFunction:
    """Return a pass that applies rules until none matches."""
    return _rewrite(lambda graph, compilation: apply_rules(graph, rules, compilation))


def _specialise(lowering: Lowering, compilation: Compilation) -> int:
    """Build the graph of the unit; return the number of its nodes."""
    lowering.graph = lowering.unit.specialise(compilation.limits)
    return len(lowering.graph.nodes)


def _widen_halves(lowering: Lowering, compilation: Compilation) -> int:
    """Compute 16-bit floats as float32; return the number of values that change."""
    lowering.declares_halves = any(value.dtype is FLOAT16 for value in lowering.graph.values())
    return widen_halves(lowering.graph, compilation.limits)


def _expand(graph: Graph, compilation: Compilation) -> int:
    """Replace composite operators; return the number of nodes replaced."""
    return expand(graph, compilation.limits)


def _large_tensors(lowering: Lowering, compilation: Compilation) -> int:
    """Read and compute in parts what the target cannot bind; return the number of rewrites.

    What other stages know of an input or output holds of its windows; those that may become float32 have none.
    """
    graph, unit = lowering.graph, lowering.unit
    if unit.interface is None:
        return divide_large_tensors(graph, compilation)
    halves = {name for name, value in zip(graph.output_names, graph.outputs) if output_dtype(graph, value) is FLOAT16}
    wide = {name for name, facts in unit.interface.inputs.items() if facts.is_wide}
    changes = divide_large_tensors(graph, compilation, wide | halves.intersection(unit.interface.widenable))
    if graph.windows:
        wholes = {name: window.whole for name, window in graph.windows.items()}
        lowering.unit = replace(unit, interface=unit.interface.of_windows(wholes))
    return changes


def _attention(graph: Graph, compilation: Compilation) -> int:
    """Recognise softmaxes with the product behind them; return the number of rewrites."""
    return apply_rules(graph, attention.rules(compilation.target), compilation)


def _packed_products(graph: Graph, compilation: Compilation) -> int:
    """Pack the quantised weights of products; return the number of rewrites."""
    return apply_rules(graph, packed_products.rules(compilation), compilation)


def _packed_siblings(graph: Graph, compilation: Compilation) -> int:
    """Join products with packed weights; return the number of products that are gone."""
    return siblings.join_siblings(graph, compilation, "PackedMatMul")


def _row_factors(graph: Graph, compilation: Compilation) -> int:
    """Move factors of rows behind products with packed weights; return the number of rewrites."""
    return apply_rules(graph, packed_products.factor_rules(compilation.target), compilation)


def _byte_products(graph: Graph, compilation: Compilation) -> int:
    """Multiply quantised tensors as words of bytes; return the number of rewrites."""
    rules = (*byte_products.rules(compilation), *byte_convolutions.rules(compilation.target), byte_ranges.WORDS)
    return apply_rules(graph, rules, compilation) + apply_rules(graph, (byte_ranges.PARAMETERS,), compilation)


def _winograd(graph: Graph, compilation: Compilation) -> int:
    """Transform 3x3 convolutions; return the number of rewrites."""
    return apply_rules(graph, (winograd_rule(compilation),), compilation)


def _widen_tensors(lowering: Lowering, compilation: Compilation) -> int:
    """Let tensors stay float32 that the file declares float16 and that reach beyond it; return their number."""
    lowering.wide = widen_tensors(lowering.graph, compilation.options, lowering.unit.interface)
    return len(lowering.wide.widened)


def _fuse(*, enabled: bool) -> PassFunction:
    """Return a pass that divides nodes among kernels: with ``enabled`` off one each.  It counts the kernels."""

    def run(lowering: Lowering, compilation: Compilation) -> int:
        target = compilation.target
        buffers = target.limit("max-storage-buffers-per-shader-stage")
        lowering.fusion = fuse(
            lowering.graph,
            enabled=enabled,
            max_operands=buffers,
            converts_halves=target.converts_halves,
            longest_own_row=target.longest_own_row,
        )
        return len(lowering.fusion.groups)

    return run


def _layout(lowering: Lowering, _: Compilation) -> int:
    """Choose the order of axes in memory."""
    return assign_layouts(lowering.graph, lowering.fusion)


def _restore_halves(lowering: Lowering, compilation: Compilation) -> int:
    """Give values in memory their declared 16-bit types back."""
    return restore_halves(lowering.graph, lowering.fusion, compilation)


def _storage(lowering: Lowering, compilation: Compilation) -> int:
    """Store float32 values as float16 where they fit, in half precision."""
    if compilation.options.precision == FLOAT32.name:
        return 0
    lowering.storage = store_halves(lowering.graph, lowering.fusion, compilation, lowering.unit.interface)
    notes = lowering.storage.notes
    return notes.activations + notes.weights


def _kernels(lowering: Lowering, compilation: Compilation) -> int:
    """Choose the kernel of every group."""
    lowering.planner = Planner(lowering.graph, lowering.fusion, lowering.unit.symbols, compilation)
    return lowering.planner.build_kernels()


def _states(lowering: Lowering, compilation: Compilation) -> int:
    """Let caches that are inputs be updated in place; return the number of results that are."""
    return declare_states(lowering.graph, lowering.fusion, compilation)


def _ranges(lowering: Lowering, _: Compilation) -> int:
    """Let kernels find the ranges of what they store."""
    return lowering.planner.store_ranges()


def _in_place(lowering: Lowering, _: Compilation) -> int:
    """Let results take over the memory of operands that die."""
    return lowering.planner.share_in_place()


def _memory(lowering: Lowering, _: Compilation) -> int:
    """Place values in arenas."""
    return lowering.planner.place_values()


def _shaders(lowering: Lowering, _: Compilation) -> int:
    """Write the text of kernels."""
    return lowering.planner.render_kernels()


def _plan(lowering: Lowering, compilation: Compilation) -> int:
    """Put calls, weights, ports and notes together."""
    storage, decisions = lowering.storage, compilation.choices.decisions.values()
    facts = PlanFacts(
        nodes=node_placements(lowering.unit.nodes, lowering.fusion),
        decisions=tuple(decision.facts() for decision in decisions),
        precision=_precision_facts(lowering),
        declares_halves=lowering.declares_halves,
        tiled=_tiled(lowering, compilation),
    )
    notes = PlanNotes(
        not_fused=fusion_refusals(lowering.fusion),
        alternatives={item.key: item.alternatives() for item in decisions if len(item.candidates) > 1},
        precision=None if storage is None else storage.notes,
        widened=lowering.wide.widened,
    )
    plan = lowering.plan = lowering.planner.assemble(facts, notes)
    return len(plan.calls)


def _tiled(lowering: Lowering, compilation: Compilation) -> tuple[str, ...]:
    """Return the symbols to whose ranges tiles were fitted."""
    symbols = lowering.unit.symbols
    names = {dimension_variable(symbol.name, symbol.low, symbol.step): symbol.name for symbol in symbols}
    return tuple(name for variable, name in names.items() if variable in compilation.choices.tiled)


def _precision_facts(lowering: Lowering) -> PrecisionFacts | None:
    """Return the facts about halves that the model declares, in stages, and about those that were chosen."""
    chosen, declared = lowering.storage, lowering.wide.overflowing
    if lowering.unit.interface is None or not declared:
        return None if chosen is None else chosen.facts
    facts = PrecisionFacts() if chosen is None else chosen.facts
    return replace(facts, overflowing={**declared, **facts.overflowing})


_EXPANDED = ("expand",)

PIPELINE = PassManager(
    (
        Pass("specialise", _specialise, required=True),
        # what operators expand to is computed in float32
        Pass("widen-halves", _widen_halves, requires=("specialise",), required=True),
        Pass("expand", _rewrite(_expand), requires=("widen-halves",), required=True),
        Pass("dead-code", _on_graph(remove_dead_code), requires=_EXPANDED),
        Pass("views", _rules(views.RULES), requires=_EXPANDED),
        Pass("common-subexpressions", _on_graph(eliminate_common_subexpressions), requires=_EXPANDED),
        Pass("simplify", _rules(simplify.RULES + requantise.RULES), requires=_EXPANDED, after=("views",)),
        Pass("rows", _rewrite(select_rows), requires=_EXPANDED, after=("simplify",)),
        # recognises subgraphs in the form that "simplify" gives views and constants, before "scales" moves factors
        Pass("attention", _rewrite(_attention), requires=_EXPANDED, after=("simplify", "rows")),
        # behind attention, which stores no scores, and before the other patterns: what they make of a weight they make
        # of its parts
        Pass("large-tensors", _large_tensors, requires=_EXPANDED, after=("simplify", "attention"), required=True),
        Pass("padding", _rules(padding.RULES), requires=_EXPANDED, after=("simplify",)),
        Pass("scales", _rules(scales.RULES), requires=_EXPANDED, after=("attention",)),
        Pass("siblings", _rewrite(siblings.join_siblings), requires=_EXPANDED, after=("attention", "scales")),
        Pass("packed-products", _rewrite(_packed_products), requires=_EXPANDED, after=("siblings",)),
        Pass("packed-siblings", _rewrite(_packed_siblings), requires=_EXPANDED, after=("packed-products",)),
        Pass("row-factors", _rewrite(_row_factors), requires=_EXPANDED, after=("packed-siblings",)),
        Pass("byte-products", _rewrite(_byte_products), requires=_EXPANDED, after=("row-factors",)),
        Pass("products", _rules(products.RULES + views.RULES), requires=_EXPANDED, after=("siblings",)),
        Pass(
            "common-subexpressions-again",
            _on_graph(eliminate_common_subexpressions),
            requires=_EXPANDED,
            after=("products",),
        ),
        # choose among forms of whole nodes, so all algebra is done
        Pass("winograd", _rewrite(_winograd), requires=_EXPANDED, after=("padding", "common-subexpressions-again")),
        Pass("split-products", _rewrite(split_products), requires=_EXPANDED, after=("winograd", "products")),
        # what makes products and convolutions comes before their weights are laid out
        Pass(
            "weight-layouts",
            _on_graph(relayout_weights),
            requires=_EXPANDED,
            after=("siblings", "winograd", "split-products"),
        ),
        Pass("tied-weights", _on_graph(share_tied_weights), requires=_EXPANDED, after=("weight-layouts",)),
        # the last pass that may make nodes: later ones keep to what a kernel can bind
        Pass(
            "operand-limit",
            _rewrite(limit_operands),
            requires=_EXPANDED,
            after=("siblings", "tied-weights"),
            required=True,
        ),
        Pass("widen-tensors", _widen_tensors, requires=("operand-limit",), required=True),
        Pass("declare-storage", _on_graph(declare_storage), requires=("widen-tensors",), required=True),
        Pass("fuse", _fuse(enabled=True), requires=("declare-storage",), fallback=_fuse(enabled=False)),
        Pass("layout", _layout, requires=("fuse",), after=("weight-layouts",)),
        Pass("restore-halves", _restore_halves, requires=("declare-storage", "fuse"), after=("layout",), required=True),
        Pass("storage", _storage, requires=("restore-halves",), after=("layout",), required=True),
        Pass("states", _states, requires=("storage",)),
        Pass("kernels", _kernels, requires=("storage",), after=("layout", "states"), required=True),
        Pass("ranges", _ranges, requires=("kernels",)),
        Pass("in-place", _in_place, requires=("kernels",), after=("ranges",)),
        Pass("memory", _memory, requires=("kernels",), after=("in-place",), required=True),
        Pass("shaders", _shaders, requires=("memory",), required=True),
        Pass("plan", _plan, requires=("shaders",), required=True),
    )
)

#: The last of the passes that keep to the operators of expanded graphs
LAST_REWRITE = "common-subexpressions-again"
#: The pass after which the groups, their layouts and their types are those of the plan
LOWERED = "storage"
