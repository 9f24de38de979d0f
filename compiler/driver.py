"""The compiler's front door: an imported model and input shapes in, a plan out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.dtypes import check_precision
from ..runtime.plan.errors import InputError
from ..runtime.plan.facts import NodePlacement
from ..runtime.plan.notes import FusionRefusal
from ..runtime.plan.plan import Plan, Symbol
from .binding.shape_binding import BoundShapes, specialise
from .frontend.model import ImportedModel, ImportedNode
from .fusion import Fusion, fuse
from .gc_pause import paused_collection
from .ir.graph import Graph, verify
from .passes.expand import expand
from .passes.layout import assign_layouts
from .passes.operands import limit_operands
from .passes.pipeline import run_passes
from .passes.split import split_products
from .passes.weights import relayout_weights
from .passes.winograd import winograd_rule
from .planning.plan_builder import Planner
from .precision.float16_storage import Borders, HalfStorage, restore_halves, store_halves, widen_halves
from .rewriting.builder import DEFAULT_LIMITS, Limits
from .rewriting.rules import Trace, apply_rules
from .tuning.config_choice import Choices

#: Called with the name of each stage or pass that ran, and the graph that it left
OnStage = Callable[[str, Graph], None]


@dataclass(frozen=True)
class CompileOptions:
    """Switches of the compiler.  All are on by default; tests turn them off one by one and compare results."""

    fusion: bool = True
    channels_last: bool = True
    in_place: bool = True
    winograd: bool = True
    split_products: bool = True  #: on GPUs
    disabled_passes: tuple[str, ...] = ()
    open_sizes: bool = True  #: plans of stages serve ranges of sizes, where a program comes to ever new ones
    verify: bool = False  #: check the IR's invariants between passes
    precision: str = "float32"  #: "float16" stores float32 values as float16 where they fit
    #: magnitudes that a run was seen to reach and that do not fit float16: (ONNX node as text, magnitude)
    reached: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        check_precision(self.precision)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> CompileOptions:
        """From JSON values; raises :class:`InputError` for an unknown name or a value of another type."""
        known = {item.name for item in fields(cls)}
        for name in options:
            if name not in known:
                raise InputError(f"unknown compiler option '{name}'", hint=f"known are {', '.join(sorted(known))}")
        values = dict(options)
        passes = values.pop("disabled_passes", ())
        precision = check_precision(values.pop("precision", "float32"))
        reached = tuple((str(node), float(magnitude)) for node, magnitude in values.pop("reached", ()))
        if isinstance(passes, str) or not all(isinstance(name, str) for name in passes):
            raise InputError("disabled_passes is a list of names of passes", hint='write it like ["views"]')
        for name, value in values.items():
            if not isinstance(value, bool):
                raise InputError(f"the compiler option '{name}' is true or false, not {value!r}", hint=f"{name}=false")
        values.update(disabled_passes=tuple(passes), precision=precision, reached=reached)
        return cls(**values)


@dataclass
class Lowered:
    """A graph on its way to a plan: what ``inspect --stage`` shows."""

    graph: Graph
    fusion: Fusion
    storage: HalfStorage | None = None  #: what became of values in half precision
    choices: Choices = field(default_factory=Choices)  #: what was asked so far, and what answers it


def lower(
    graph: Graph,
    profile: DeviceProfile,
    options: CompileOptions,
    *,
    limits: Limits = DEFAULT_LIMITS,
    on_stage: OnStage | None = None,
    trace: Trace | None = None,
    choices: Choices | None = None,
    borders: Borders | None = None,
) -> Lowered:
    """Everything from a specialised graph to fused groups with layouts; ``trace`` collects the rewrites that matched.

    ``graph`` is changed.  ``choices`` has measured configurations; without it the cost models decide.  ``borders`` says
    what a stage of a program must know of the others.
    """
    choices = choices or Choices()

    def stage(name: str, graph: Graph) -> None:
        if options.verify:
            verify(graph)
        if on_stage is not None:
            on_stage(name, graph)

    stage("specialise", graph)
    expand(graph, limits)
    stage("expand", graph)
    run_passes(
        graph,
        disabled=frozenset(options.disabled_passes),
        verify=options.verify,
        trace=trace,
        on_pass=None if on_stage is None else lambda report, changed: on_stage(report.name, changed),
        limits=limits,
        profile=profile,
    )
    if options.winograd and options.precision == "float32":  # transformed tiles are no place for half precision
        apply_rules(graph, (winograd_rule(profile, choices),), limits=limits, trace=trace)
        stage("winograd", graph)
    if options.split_products:
        split_products(graph, profile, limits=limits, trace=trace, choices=choices)
        stage("split", graph)
    if options.channels_last:
        relayout_weights(graph)
        stage("weights", graph)
    buffers = profile.limit("max-storage-buffers-per-shader-stage")
    limit_operands(graph, buffers - 1, limits)
    stage("operands", graph)
    declared = widen_halves(graph)
    fusion = fuse(graph, enabled=options.fusion, max_operands=buffers)
    assign_layouts(graph, fusion, enabled=options.channels_last)
    restore_halves(graph, fusion, profile, declared)
    stage("layout", graph)
    if options.precision == "float32":
        return Lowered(graph, fusion, choices=choices)
    storage = store_halves(graph, fusion, profile, dict(options.reached), borders)
    stage("storage", graph)
    return Lowered(graph, fusion, storage, choices)


def compile_model(
    model: ImportedModel,
    bound: BoundShapes,
    profile: DeviceProfile,
    options: Mapping[str, Any] | CompileOptions | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    on_stage: OnStage | None = None,
    make_planner: Callable[..., Planner] = Planner,
    choices: Choices | None = None,
) -> Plan:
    """Compile ``model`` for the input shapes in ``bound``.

    ``make_planner`` takes the arguments of :class:`Planner`; see :mod:`.host_weights` for one that evaluates weights.
    ``choices`` has measured configurations.

    Deterministic: the same model, shapes, profile, options and measurements give the same plan in any process.  Raises
    the errors of the family :class:`~.errors.ShaderloomError`, with the ONNX node at fault.
    """
    if not isinstance(options, CompileOptions):
        options = CompileOptions.of(options or {})
    with paused_collection():
        graph = specialise(model, bound.shapes, limits)
    return compile_graph(
        graph,
        model.graph.nodes,
        profile,
        options,
        symbols=bound.symbols,
        limits=limits,
        on_stage=on_stage,
        make_planner=make_planner,
        choices=choices,
    )


def compile_graph(
    graph: Graph,
    nodes: Sequence[ImportedNode],
    profile: DeviceProfile,
    options: Mapping[str, Any] | CompileOptions | None = None,
    *,
    symbols: tuple[Symbol, ...] = (),
    limits: Limits = DEFAULT_LIMITS,
    on_stage: OnStage | None = None,
    make_planner: Callable[..., Planner] = Planner,
    choices: Choices | None = None,
    borders: Borders | None = None,
) -> Plan:
    """Compile a specialised graph, made from ``nodes``; it is changed.  See :func:`compile_model`, :func:`lower`."""
    if not isinstance(options, CompileOptions):
        options = CompileOptions.of(options or {})
    with paused_collection():
        lowered = lower(graph, profile, options, limits=limits, on_stage=on_stage, choices=choices, borders=borders)
        return make_plan(nodes, symbols, profile, options, lowered, make_planner=make_planner)


def make_plan(
    nodes: Sequence[ImportedNode],
    symbols: tuple[Symbol, ...],
    profile: DeviceProfile,
    options: CompileOptions,
    lowered: Lowered,
    *,
    make_planner: Callable[..., Planner] = Planner,
) -> Plan:
    """The second half of :func:`compile_graph`: from fused groups with layouts to a plan."""
    planner = make_planner(
        lowered.graph, lowered.fusion, profile, symbols, in_place=options.in_place, choices=lowered.choices
    )
    plan = planner.plan()
    return replace(
        plan,
        facts=replace(
            plan.facts,
            nodes=_node_placements(nodes, lowered.fusion),
            decisions=tuple(answer.facts() for answer in lowered.choices.answers.values()),
            precision=None if lowered.storage is None else lowered.storage.facts,
        ),
        notes=replace(
            plan.notes,
            not_fused=tuple(
                FusionRefusal(str(producer.origin or producer.op), str(consumer.origin or consumer.op), why)
                for producer, consumer, why in lowered.fusion.reasons
            ),
            precision=None if lowered.storage is None else lowered.storage.notes,
        ),
    )


def _node_placements(nodes: Sequence[ImportedNode], fusion: Fusion) -> tuple[NodePlacement, ...]:
    """Return how each ONNX node is computed."""
    running: set[tuple[str, int]] = set()
    constant: set[tuple[str, int]] = set()
    for group in fusion.groups:
        target = constant if group.constant else running
        target.update((origin.graph, origin.index) for node in group.nodes for origin in node.origins)
    return tuple(
        NodePlacement.RUN
        if position in running
        else NodePlacement.WEIGHTS
        if position in constant
        else NodePlacement.FOLDED
        for position in ((node.origin.graph, node.origin.index) for node in nodes)
    )
