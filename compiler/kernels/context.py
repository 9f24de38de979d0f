"""What a kernel family sees of its group: reading operands, storing results, and making the spec.

A family's ``build(context)`` writes loops over index variables of its own; :meth:`GroupContext.read` gives the
expression of an operand's element at logical coordinates (inlined producers composed in, materialised values loaded at
their physical position), and :meth:`GroupContext.stores` pushes the anchor's result through the epilogue to the
group's output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...runtime.plan.errors import DeviceLimitError, InternalError
from ..codegen.spec import LONG_WORDS, Grid, Hook, KernelSpec, Operand, Store, Workgroup
from ..compilation import Compilation
from ..ir.coordinates import broadcast_coordinates
from ..ir.graph import Node, Shape, Value
from ..ops.registry import Registry, registry
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANE, LANES, depends_on_lane, is_aligned, lane_variable
from ..symbolic.polynomial import Dim
from ..target import Target
from ..tuning.config_choice import Candidate, Decision
from . import loop_trips as loop_rounds
from .accesses import Accesses
from .groups import Group
from .operand_names import reads_own_element_only, renamed, stored_expressions, written_over


@dataclass(frozen=True, slots=True)
class Phase:
    """One reduction of a row program: combine ``value`` over the reduced axes into register ``name``."""

    kind: str  #: sum, prod, max or min
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Built:
    """A spec, the values behind its operands (in the order of ``spec.operands``), and how it was configured."""

    spec: KernelSpec
    operands: tuple[Value, ...]
    flops: Dim
    decisions: tuple[Decision, ...] = ()

    def reads_in_step(self, operand: Value) -> bool:
        """Return whether each thread reads of ``operand`` only what it overwrites if the result takes its memory."""
        return reads_own_element_only(self.spec, self._name(operand))

    def in_place(self, operand: Value) -> Built:
        """Return the same kernel with its result in the memory of ``operand``."""
        result = self.spec.operands[-1].name
        spec = written_over(self.spec, self._name(operand), result)
        return replace(self, spec=spec, operands=tuple(value for value in self.operands if value is not operand))

    def _name(self, operand: Value) -> str:
        return self.spec.operands[self.operands.index(operand)].name


class GroupContext:
    """The group under construction; one instance per kernel."""

    def __init__(
        self,
        group: Group,
        materialised: Mapping[Value, Group],
        compilation: Compilation,
        *,
        symbols: Sequence[str] = (),
        operators: Registry = registry,
    ) -> None:
        self.group = group
        self.choices = compilation.choices
        self.target = compilation.target
        self.symbols = tuple(symbols)
        self.materialised = materialised
        self.operators = operators
        self._decisions: dict[str, Decision] = {}
        self._names: dict[Value, str] = {}
        self._accesses = Accesses()
        self._memo: dict[tuple[Value, tuple[Dim, ...]], Expr] = {}
        self._stop: dict[Value, tuple[tuple[Dim, ...], Expr]] = {}  #: region values that are registers

    @property
    def anchor(self) -> Node:
        assert self.group.region is not None
        return self.group.region.anchor

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, value: Value, coordinates: Sequence[Dim]) -> Expr:
        """The element of ``value`` at logical ``coordinates``, in the value's compute type."""
        where = tuple(coordinates)
        stop = self._stop.get(value)
        if stop is not None:
            if stop[0] != where:
                raise InternalError(f"{value!r} is read at other coordinates than it is computed at")
            return stop[1]
        key = (value, where)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._compute(value, where)
        return found

    def _compute(self, value: Value, where: tuple[Dim, ...]) -> Expr:
        known = self._known(value, where)
        if known is not None:
            return known
        producer = value.producer
        if producer is None or (value in self.materialised and value is not self.group.output):
            return self.load(value, where)
        if value is self.group.output and self.group.region is not None and producer in self.group.region.nodes:
            raise InternalError(f"{value!r} is read by the kernel that computes it")
        return self.evaluate(producer, where)

    def evaluate(self, node: Node, where: tuple[Dim, ...]) -> Expr:
        """The expression of a map node's result at ``where``."""
        definition = self.operators.of(node)
        output = node.outputs[0]
        if definition.element is not None:
            arguments = [
                self.read(operand, broadcast_coordinates(where, output.shape, operand.shape))
                for operand in node.inputs
                if operand is not None
            ]
            result = definition.element(node, arguments)
        elif definition.gather is not None:
            result = definition.gather(node, where, lambda position, at: self.read(node.operand(position), tuple(at)))
        else:
            raise InternalError(f"{node.op} cannot be computed element by element", origin=node.origin)
        if result.dtype != output.dtype.compute:
            raise InternalError(f"{node.op} gives {result.dtype} for {output.dtype}", origin=node.origin)
        return result

    def read_with(self, value: Value, coordinates: Sequence[Dim], known: Value, where: Shape, element: Expr) -> Expr:
        """The element of ``value`` where that of ``known``, which it is computed from at ``where``, is ``element``."""
        self._stop = {known: (where, element)}
        result = self.read(value, coordinates)
        self._stop = {}
        self._memo.clear()
        return result

    @staticmethod
    def _known(value: Value, where: tuple[Dim, ...]) -> Expr | None:
        """Elements that are known at compile time become literals, or symbols."""
        if value.elements == 0:  # never read: whoever asks guards it away (an empty part of a Concat)
            return ex.const(0, value.dtype.compute)
        if value.known is None or value.known.size > 1:
            return None
        element = value.known.reshape(-1)[0]
        dtype = value.dtype.compute
        if isinstance(element, ix.Index):
            return ex.of_dim(element, dtype)
        return ex.const(element.item() if hasattr(element, "item") else element, dtype)

    def load(self, value: Value, where: tuple[Dim, ...]) -> Expr:
        """A load from memory at the position that the value's layout gives."""
        if not value.dtype.on_device:
            raise DeviceLimitError(f"{value.dtype} tensors have no storage on the device", tensor=value.name)
        position = value.layout.position(value.shape, where)
        load = ex.load(self.name(value), value.dtype.name, position, value.dtype.compute)
        self._accesses.loaded(load, value, where)
        return load

    def name(self, value: Value) -> str:
        """Name of the operand bound for ``value``: ``y`` for the output, ``y1`` ... for further ones, or ``x0`` ..."""
        if value is self.group.output:
            return "y"
        if value in self.group.also:
            return f"y{1 + self.group.also.index(value)}"
        if value not in self._names:
            self._names[value] = f"x{len(self._names)}"
        return self._names[value]

    @staticmethod
    def vectorizes(value: Expr) -> bool:
        """Whether every load that differs by lane is an aligned load of four neighbours."""
        return all(
            is_aligned(node.payload.position) for node in ex.loads(value) if depends_on_lane(node.payload.position)
        )

    # -- storing -------------------------------------------------------------------------------------------------

    def stores(self, coordinates: Sequence[Dim], value: Expr, condition: Expr | None = None) -> tuple[Store, ...]:
        """Push the anchor's element at ``coordinates`` through the epilogue, to the group's output.

        ``value`` is usually a register (the accumulator).  ``condition`` guards the store (tails of tiles).
        """
        region = self.group.region
        assert region is not None
        mapping = {f"a{axis}": coordinate for axis, coordinate in enumerate(coordinates)}
        self._stop = {}
        root = region.anchor.outputs[0]
        self._enter(root, mapping, value)
        for node in region.nodes[1:]:
            self._enter(node.outputs[0], mapping, self._member(node, mapping))
        where, result = self._stop[region.exit]
        self._stop = {}
        self._memo.clear()
        return (self._store(region.exit, where, result, condition),)

    def _enter(self, value: Value, mapping: Mapping[str, Dim], result: Expr) -> None:
        region = self.group.region
        assert region is not None
        where = tuple(ix.substitute(coordinate, mapping) for coordinate in region.coordinates[value])
        self._stop[value] = (where, result)

    def _member(self, node: Node, mapping: Mapping[str, Dim]) -> Expr:
        """A region node's value: elementwise, or a view that only changed the coordinates."""
        definition = self.operators.of(node)
        if definition.store_map is not None and definition.element is None:
            return self._stop[node.operand(0)][1]
        region = self.group.region
        assert region is not None
        where = tuple(ix.substitute(coordinate, mapping) for coordinate in region.coordinates[node.outputs[0]])
        return self.evaluate(node, where)

    def is_run(self, coordinates: Sequence[Dim]) -> bool:
        """Return whether the results for the anchor's elements at ``coordinates``, which differ by lane, are four
        aligned neighbours in memory: words that one thread owns."""
        region = self.group.region
        assert region is not None
        mapping = {f"a{axis}": coordinate for axis, coordinate in enumerate(coordinates)}
        where = tuple(ix.substitute(coordinate, mapping) for coordinate in region.coordinates[region.exit])
        return is_aligned(region.exit.layout.position(region.exit.shape, where))

    def store(self, where: Sequence[Dim], value: Expr, condition: Expr | None = None) -> Store:
        """Write the group's output directly, at logical coordinates (map kernels)."""
        return self._store(self.group.output, tuple(where), value, condition)

    def store_at(self, position: Dim, value: Expr, output: Value) -> Store:
        """Write one of the group's outputs directly, at a position in memory (map kernels)."""
        return self._store_at(output, position, value, None)

    def _store(self, output: Value, where: tuple[Dim, ...], value: Expr, condition: Expr | None) -> Store:
        position = output.layout.position(output.shape, where)
        self._accesses.stored(position, output, where)
        return self._store_at(output, position, value, condition)

    def _store_at(self, output: Value, position: Dim, value: Expr, condition: Expr | None) -> Store:
        if not output.dtype.on_device:
            raise DeviceLimitError(f"{output.dtype} tensors have no storage on the device", tensor=output.name)
        if value.op == f"round_{output.dtype.name}":  # the store does it
            value = value.args[0]
        return Store(self.name(output), output.dtype.name, position, value, condition)

    # -- row programs: reductions, softmax, normalisation -----------------------------------------------------------

    @property
    def exit_is_row(self) -> bool:
        """Whether a row program stores one element a row (a reduction) or one an element (a normalisation)."""
        region = self.group.region
        assert region is not None
        reduced = {f"a{axis}" for axis in self.anchor.attributes.axes}
        return not any(reduced & ix.variables(coordinate) for coordinate in region.coordinates[region.exit])

    def row_program(self, coordinates: Sequence[Dim], condition: Expr | None = None) -> tuple[list[Phase], Store]:
        """The reductions, in order, and the final store, at ``coordinates`` of the reduced tensor.

        The value of each phase is what one element contributes; it may use the registers of earlier phases.
        """
        region = self.group.region
        assert region is not None
        mapping = {f"a{axis}": coordinate for axis, coordinate in enumerate(coordinates)}
        self._stop = {}
        phases: list[Phase] = []
        for node in region.nodes:
            output = node.outputs[0]
            if node in region.reductions:
                name = f"r{len(phases)}"
                phases.append(Phase(node.attributes.kind, name, self.read(node.operand(0), tuple(coordinates))))
                self._enter(output, mapping, ex.register(name, output.dtype.compute))
            else:
                self._enter(output, mapping, self._member(node, mapping))
        where, result = self._stop[region.exit]
        store = self._store(region.exit, where, result, condition)
        self._stop = {}
        self._memo.clear()
        return phases, store

    # -- the spec ------------------------------------------------------------------------------------------------

    def choose(
        self,
        key: str,
        candidates: Sequence[Candidate],
        cost: Callable[[Candidate], float | None] | None = None,
    ) -> Candidate:
        """Return the configuration for the problem ``key`` among ``candidates``, the best by ``cost`` first."""
        chosen = self.choices.choose(key, candidates, cost=cost)
        self._decisions[key] = self.choices.decisions[key]
        return chosen

    def built(
        self,
        template: str,
        config: Any,
        hooks: Sequence[Hook],
        *,
        dims: Mapping[str, Dim],
        workgroup: Workgroup,
        grid: Grid,
        rounds: int,
        calls: int | None = None,
        workgroup_bytes: int = 0,
        flops: Dim = 0,
        parameters: Mapping[str, Any] | None = None,
        features: tuple[str, ...] = (),
    ) -> Built:
        """Bind every tensor that the hooks touch, keep accesses inside, check the device's limits, make the spec.

        ``rounds`` is an upper bound of the rounds that all loops of the template make in one thread, ``calls`` of the
        times that they call each hook, where that is not once a round.
        """
        values = {name: value for value, name in self._names.items()}
        outputs = (*self.group.also, self.group.output)
        hooks = self._accesses.bounded(hooks, {**values, **{self.name(output): output for output in outputs}})
        read: dict[str, None] = {}
        for hook in hooks:
            expressions = [each for store in hook.stores for each in stored_expressions(store)]
            if hook.result is not None:
                expressions.append(hook.result)
            for expression in expressions:
                read.update((str(node.payload.operand), None) for node in ex.loads(expression))
        operands: list[Operand] = []
        bound: list[Value] = []
        loaded = sorted((name for name in read if name.startswith("x")), key=lambda name: int(name[1:]))
        for number, name in enumerate(loaded):
            value = values[name]
            operands.append(Operand(f"x{number}", "read", value.dtype.name))
            bound.append(value)
        names = {name: f"x{number}" for number, name in enumerate(loaded)}
        hooks = [renamed(hook, names) for hook in hooks]
        for output in outputs:
            operands.append(Operand(self.name(output), "read_write", output.dtype.name))
            bound.append(output)
        self._check_limits(operands, workgroup, grid, workgroup_bytes)
        self._check_rounds(rounds + max(rounds if calls is None else calls, 1) * loop_rounds.of_hooks(hooks))
        spec = KernelSpec(
            template,
            config,
            tuple(operands),
            tuple(hooks),
            tuple(sorted(dims.items())),
            workgroup,
            grid,
            self.symbols,
            (*self._features(), *features),
            workgroup_bytes,
            tuple(sorted((parameters or {}).items())),
        )
        return Built(spec, tuple(bound), flops, tuple(self._decisions.values()))

    def _features(self) -> tuple[str, ...]:
        """Optional features that the text may use: those that pay on the device."""
        return (LONG_WORDS,) if self.target.prefers_long_words and self.target.has_feature(LONG_WORDS) else ()

    def _check_rounds(self, rounds: int) -> None:
        limit = self.target.max_loop_trips
        if limit is not None and rounds > limit:
            node = self.group.nodes[-1] if self.group.region is None else self.anchor
            raise DeviceLimitError(
                f"{rounds:,} rounds of the loops of {node.op} in one thread; those of a software driver end after "
                f"{limit:,} rounds",
                origin=node.origin,
                hint="use shorter axes or fewer steps at a time, the provider 'cpu' for this node, or a GPU",
            )

    def _check_limits(self, operands: list[Operand], workgroup: Workgroup, grid: Grid, workgroup_bytes: int) -> None:
        node = self.group.nodes[-1]
        checks = (
            (len(operands), "max-storage-buffers-per-shader-stage", "storage buffers"),
            (workgroup[0] * workgroup[1] * workgroup[2], "max-compute-invocations-per-workgroup", "invocations"),
            (workgroup_bytes, "max-compute-workgroup-storage-size", "bytes of workgroup memory"),
            (
                max(ix.bounds(size)[1] for size in grid),
                "max-compute-workgroups-per-dimension",
                "workgroups in a dimension",
            ),
        )
        for amount, limit, what in checks:
            if amount > self.target.limit(limit):
                raise DeviceLimitError(
                    f"the kernel of {node.op} needs {amount} {what}, the device allows {self.target.limit(limit)} "
                    f"({limit})",
                    origin=node.origin,
                )


def lanes_of(base: Dim) -> Dim:
    """The coordinate of four neighbours: ``4 * base + lane``."""
    return ix.add(ix.multiply(base, LANES), lane_variable())


def linear_grid(threads: Dim, workgroup_size: int, target: Target) -> Grid:
    """Workgroups for a flat range of threads; a second dimension where the first would exceed the limit.

    Kernels compute their number as ``id.x + id.y * groups.x * workgroup_size`` and return if it is too large.
    """
    groups = ix.ceildiv(threads, workgroup_size)
    limit = target.limit("max-compute-workgroups-per-dimension")
    if ix.bounds(groups)[1] <= limit:
        return groups, 1, 1
    return limit, ix.ceildiv(groups, limit), 1


def unflatten(flat: Dim, sizes: Sequence[Dim]) -> list[Dim]:
    """Coordinates of element ``flat`` in a row-major block of ``sizes``; the outermost that is not 1 is not reduced.

    So neighbours along the innermost axis stay neighbours for elements past the end too, whose coordinates are too
    large.
    """
    coordinates: list[Dim] = [0] * len(sizes)
    wide = [axis for axis, size in enumerate(sizes) if size != 1]
    for axis in reversed(wide[1:]):
        if sizes[axis] == 0:  # the block has no elements: nothing will run
            continue
        coordinates[axis] = ix.modulo(flat, sizes[axis])
        flat = ix.floordiv(flat, sizes[axis])
    if wide:
        coordinates[wide[0]] = flat
    return coordinates


__all__ = ["LANE", "Built", "GroupContext", "Phase", "lanes_of", "linear_grid", "unflatten"]
