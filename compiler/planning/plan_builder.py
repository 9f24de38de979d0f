"""Fused groups to a plan: builds the kernels, decides in-place sharing, places buffers, names every range.

The order matters, and each step is a pass of the pipeline.  Layouts are chosen already.  In-place sharing merges two
bindings, so it changes specs; lifetimes follow from the order of the groups; where a value lives decides how a kernel
binds it.  Text is written once all of that is known, and names come last.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...runtime.plan.codec import encode
from ...runtime.plan.dimension import DimExpr
from ...runtime.plan.dtypes import DType, padded_bytes
from ...runtime.plan.errors import DeviceLimitError, InternalError, ShaderloomError
from ...runtime.plan.facts import PlanFacts, TensorKind
from ...runtime.plan.notes import MemoryNotes, PlanNotes
from ...runtime.plan.plan import (
    Alias,
    Constant,
    DeviceStep,
    Kernel,
    KernelCall,
    Plan,
    Port,
    Range,
    SourceRef,
    Symbol,
    Weight,
)
from ..codegen.render import render
from ..codegen.spec import KernelSpec
from ..compilation import Compilation
from ..fusion import Fusion
from ..ir.graph import Graph, Value
from ..kernels.context import Built, GroupContext
from ..kernels.family import build
from ..kernels.groups import Group
from ..kernels.signature import signature
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import dimension_variable, serialise
from ..symbolic.polynomial import Dim
from ..tuning.config_choice import Decision
from . import arena_allocator
from .call_info import CallRecorder


def tensor_bytes(elements: Dim, dtype: DType) -> Dim:
    """Size of a tensor's range; see :func:`~.dtypes.padded_bytes`."""
    if isinstance(elements, ix.Index):
        return ix.maximum(ix.multiply(ix.ceildiv(ix.multiply(elements, dtype.bits), 128), 16), 16)
    return padded_bytes(elements, dtype)


def stored_bytes(value: Value) -> Dim:
    """Bytes that a value takes in memory, padding of its layout included."""
    return tensor_bytes(value.layout.stored_elements(value.shape), value.dtype)


def static_bytes(value: Value) -> int:
    """The same for a value whose sizes are all numbers: constants, and what depends on constants alone."""
    size = stored_bytes(value)
    if isinstance(size, ix.Index):
        raise InternalError(f"{value!r} has no fixed size")
    return size


def digest(**entries: Any) -> str:
    """sha256 over the canonical JSON of named entries."""
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


@dataclass
class _Made:
    """A group with the spec of its kernel; ``shares`` is the operand whose memory the output takes over."""

    group: Group
    built: Built
    shares: Value | None = None


class Planner:
    """Makes the plan of one graph, in the order :meth:`build_kernels`, :meth:`share_in_place` (which may be left out),
    :meth:`place_values`, :meth:`render_kernels`, :meth:`assemble`.
    """

    def __init__(
        self,
        graph: Graph,
        fusion: Fusion,
        symbols: Sequence[Symbol],
        compilation: Compilation,
    ) -> None:
        """Take the groups of ``graph`` with their layouts; ``symbols`` are the declared dynamic dimensions."""
        self.graph = graph
        self.fusion = fusion
        self.symbols = tuple(symbols)
        self.compilation = compilation
        self.kernels: dict[str, Kernel] = {}  #: by key, in the order of the groups
        self.sources: dict[str, SourceRef] = {}
        self.weights: dict[str, Weight] = {}
        self.made: dict[Value, _Made] = {}
        self._weight_keys: dict[Value, str] = {}
        self._built: dict[Hashable, tuple[KernelSpec, tuple[int, ...], Dim, tuple[Decision, ...]]] = {}  #: by signature
        self._kernel_of: dict[Value, Kernel] = {}  #: by the output of the group
        self.running = [group for group in fusion.groups if not group.constant]
        self.outputs: dict[Value, str] = {}  #: computed output values, by the name of the first output that they are
        for value, name in zip(graph.outputs, graph.output_names, strict=True):
            group = fusion.materialised.get(value)
            if value.producer is not None and (value.elements == 0 if group is None else not group.constant):
                self.outputs.setdefault(value, name)
        self.inputs = set(graph.inputs)
        self.allocation = arena_allocator.Allocation()
        self.live_ranges: list[arena_allocator.LiveRange] = []  #: of the blocks of memory, those of outputs last
        self.homes: dict[Value, int] = {}  #: the number of each root value's block
        self.rooms: list[str] = []  #: buffers of outputs, in the order in which they are written first
        self.owner: dict[Value, Value] = {}  #: value -> value whose memory it lives in, after in-place sharing
        self.last_read: dict[Value, int] = {}  #: owner of a block of memory -> the last group that reads the block
        for group in self.running:
            for value in group.reads:
                self.last_read[value] = group.index

    def build_kernels(self) -> int:
        """Choose the kernel of every group; return the number of groups.

        Raises the errors of the compiler with the ONNX node at fault.
        """
        for group in self.fusion.groups:
            self._make(group)
        return len(self.fusion.groups)

    def share_in_place(self) -> int:
        """Let results take over the memory of operands that die where every thread reads only what it overwrites.

        Return the number of results that do.
        """
        shared = 0
        for group in self.running:
            made = self.made[group.output]
            made.shares = self._shareable(group, made.built)
            if made.shares is None:
                continue
            made.built = made.built.in_place(made.shares)
            root = self.owner[group.output] = self._root(made.shares)
            self.last_read[root] = max(self.last_read.get(root, -1), self.last_read.get(group.output, -1))
            shared += 1
        return shared

    def place_values(self) -> int:
        """Place the values of the run in arenas; return the number of arenas.

        Raises :class:`DeviceLimitError` for a value that the device cannot bind.
        """
        self._place()
        self._bind_shared_arenas()
        return len(self.allocation.arenas)

    def assemble(self) -> Plan:
        """Put the plan together: calls with their ranges, weights, ports, and the notes of calls."""
        calls = tuple(self._call(self.made[group.output]) for group in self.running)
        recorder = CallRecorder(self._kind_of)
        for group in self.running:
            made = self.made[group.output]
            recorder.add(group, made.built, made.shares)
        inputs = tuple(
            Port(value.name, value.dtype.name, tuple(serialise(dim) for dim in value.shape))
            for value in self.graph.inputs
        )
        ports, constants, aliases = self._output_ports()
        plan = Plan(
            key="",
            inputs=inputs,
            outputs=ports,
            symbols=self.symbols,
            kernels=tuple(self.kernels.values()),
            sources=tuple(self.sources.values()),
            weights=tuple(self.weights.values()),
            steps=(DeviceStep(calls),),
            arenas=tuple(serialise(size) for size in self.allocation.arenas),
            constants=constants,
            aliases=aliases,
            facts=PlanFacts(tuple(recorder.tensors), tuple(recorder.calls)),
            notes=PlanNotes(tuple(recorder.notes), self._memory_notes()),
        )
        content = {name: value for name, value in plan.to_json().items() if name not in ("key", "facts", "notes")}
        return replace(plan, key=digest(**content))

    # -- kernels -------------------------------------------------------------------------------------------------

    def _make(self, group: Group) -> None:
        """Choose the kernel of one group; errors get the group's last ONNX node."""
        try:
            self.made[group.output] = _Made(group, self._build(group))
        except ShaderloomError as error:
            error.origin = error.origin or group.nodes[-1].origin
            raise

    def render_kernels(self) -> int:
        """Write the shader of every group, of equal specs once; return the number of shaders."""
        rendered: dict[KernelSpec, Kernel] = {}
        for output, made in self.made.items():
            spec = made.built.spec
            kernel = rendered.get(spec)
            if kernel is None:
                try:
                    kernel = rendered[spec] = render(spec)
                except ShaderloomError as error:
                    error.origin = error.origin or made.group.nodes[-1].origin
                    raise
                self.kernels.setdefault(kernel.key, kernel)
            self._kernel_of[output] = kernel
        return len(self.kernels)

    def _build(self, group: Group) -> Built:
        """The group's kernel; a group that is like an earlier one gets its spec."""
        own = signature(group, self.fusion.materialised)
        found = None if own is None else self._built.get(own.key)
        if own is not None and found is not None:
            spec, places, flops, decisions = found
            return Built(spec, tuple(own.values[place] for place in places), flops, decisions)
        names = [dimension_variable(symbol.name, symbol.low, symbol.step) for symbol in self.symbols]
        context = GroupContext(group, self.fusion.materialised, self.compilation, symbols=names)
        built = build(context)
        if own is not None:
            places = tuple(own.values.index(value) for value in built.operands)
            self._built[own.key] = (built.spec, places, built.flops, built.decisions)
        return built

    def _root(self, value: Value) -> Value:
        return self.owner.get(value, value)

    def _shareable(self, group: Group, built: Built) -> Value | None:
        """An operand that dies here and that every thread reads only where it writes."""
        output = group.output
        if output in self.outputs:
            return None
        size = stored_bytes(output)
        for value in built.operands:
            source = self.fusion.materialised.get(value)
            if value is output or source is None or source.constant or value in self.outputs:
                continue
            if value.dtype.itemsize != output.dtype.itemsize or stored_bytes(value) != size:
                continue
            if value.dtype.name != output.dtype.name:
                continue  # one binding has one element type
            if self._read_later(value, group) or any(
                self._root(other) is self._root(value) and other is not value for other in built.operands
            ):
                continue
            if built.reads_in_step(value):
                return value
        return None

    def _read_later(self, value: Value, group: Group) -> bool:
        """Whether the block of memory that holds ``value`` is read after ``group``."""
        return self.last_read.get(self._root(value), -1) > group.index

    # -- weights -------------------------------------------------------------------------------------------------

    @staticmethod
    def _reference(value: Value) -> SourceRef:
        source: Any = value.constant
        return source.to_ref()

    def _source(self, value: Value) -> str:
        reference = self._reference(value)
        self.sources.setdefault(reference.key, reference)
        return reference.key

    def _weight(self, value: Value) -> str:
        """Key of the pool entry that holds a constant or a transformed weight."""
        if value in self._weight_keys:
            return self._weight_keys[value]
        size = static_bytes(value)
        if value.is_constant:
            source = self._source(value)
            key = digest(source=source, transform=None)
            weight = Weight(key, size, (source,), (), value.name)
        else:
            calls, sources = self._transform(value)
            key = digest(
                sources=sources, calls=[[call.kernel, [encode(item) for item in call.ranges]] for call in calls]
            )
            own = self._local(value)
            calls = tuple(
                replace(
                    call,
                    ranges=tuple(
                        replace(item, buffer=f"weight:{key}") if item.buffer == own else item for item in call.ranges
                    ),
                )
                for call in calls
            )
            weight = Weight(key, size, tuple(sources), calls, value.name)
        self._weight_keys[value] = key
        self.weights.setdefault(key, weight)
        return key

    @staticmethod
    def _local(value: Value) -> str:
        """A name for a constant value inside one weight's list of calls."""
        return f"weight:local{value.id}"

    def _transform(self, value: Value) -> tuple[tuple[KernelCall, ...], list[str]]:
        """The calls that make a constant value, in order, and the sources that they read."""
        order: list[Value] = []
        seen: set[Value] = set()
        stack = [(value, False)]
        while stack:
            current, ready = stack.pop()
            if ready:
                order.append(current)
                continue
            if current in seen:
                continue
            seen.add(current)
            stack.append((current, True))
            stack.extend((read, False) for read in reversed(self.made[current].group.reads) if not read.is_constant)
        # names must not depend on value ids, or equal weights of two plans would have different keys
        local = {current: f"weight:scratch{number}" for number, current in enumerate(order)}
        local[value] = self._local(value)
        sources: dict[str, None] = {}
        calls = []
        for current in order:
            made = self.made[current]
            ranges = []
            for operand in made.built.operands:
                if operand.is_constant:
                    key = self._source(operand)
                    sources[key] = None
                    ranges.append(Range(f"source:{key}", 0, static_bytes(operand)))
                else:
                    ranges.append(Range(local[operand], 0, static_bytes(operand)))
            calls.append(self._kernel_call(made, tuple(ranges)))
        return tuple(calls), list(sources)

    # -- activations ---------------------------------------------------------------------------------------------

    def _place(self) -> None:
        """Compute the lifetimes of the blocks of memory, and place them."""
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        written: dict[Value, set[int]] = {}
        read: dict[Value, set[int]] = {}
        for call, group in enumerate(self.running):
            made = self.made[group.output]
            roots = [self._root(value) for value in group.outputs]
            for root in roots:
                first.setdefault(root, call)
                last[root] = call
                written.setdefault(root, set()).add(call)
            for value in made.built.operands:
                operand_root = self._root(value)
                if operand_root not in roots and operand_root in first:
                    last[operand_root] = call
                    read.setdefault(operand_root, set()).add(call)
        blocks = [root for root in first if root not in self.outputs]
        tensors = [
            arena_allocator.LiveRange(
                stored_bytes(root), first[root], last[root], frozenset(written[root]), frozenset(read.get(root, ()))
            )
            for root in blocks
        ]
        self._check_sizes(blocks)
        self.homes = {root: number for number, root in enumerate(blocks)}
        end = len(self.running)
        produced = [
            arena_allocator.LiveRange(
                stored_bytes(root), first[root], end, frozenset(written[root]), frozenset(read.get(root, ()))
            )
            for root in first
            if root in self.outputs
        ]
        self.allocation = arena_allocator.allocate(tensors, self.compilation.profile.storage_alignment, produced)
        self.live_ranges = tensors + produced
        self.rooms = [f"output:{self.outputs[root]}" for root in first if root in self.outputs]

    def _bind_shared_arenas(self) -> None:
        """Bind for writing what a call reads from the arena that it writes: a buffer has one kind of use in a call."""
        for group in self.running:
            made = self.made[group.output]
            written, spec = self._range(group.output).buffer, made.built.spec
            operands = tuple(
                replace(operand, access="read_write")
                if self._lives(value) and self._range(value).buffer == written
                else operand
                for operand, value in zip(spec.operands, made.built.operands, strict=True)
            )
            if operands != spec.operands:
                made.built = replace(made.built, spec=replace(spec, operands=operands))

    def _lives(self, value: Value) -> bool:
        """Whether a kernel of the run makes the value."""
        group = self.fusion.materialised.get(value)
        return group is not None and not group.constant

    def _check_sizes(self, values: Sequence[Value]) -> None:
        limit = self.compilation.profile.limit("max-storage-buffer-binding-size")
        for value in values:
            size = ix.bounds(stored_bytes(value))[1]
            if size > limit:
                raise DeviceLimitError(
                    f"the tensor takes {size:,} bytes, the device binds at most {limit:,} at once",
                    tensor=value.name or repr(value),
                    origin=value.producer.origin if value.producer else None,
                    hint="use a smaller batch or input",
                )

    def _call(self, made: _Made) -> KernelCall:
        return self._kernel_call(made, tuple(self._range(value) for value in made.built.operands))

    def _kernel_call(self, made: _Made, ranges: tuple[Range, ...]) -> KernelCall:
        spec, kernel = made.built.spec, self._kernel_of[made.group.output]
        if len(kernel.bindings) > len(spec.operands):  # the symbols uniform
            ranges += (Range("symbols", 0, max(-(-4 * len(self.symbols) // 16) * 16, 16)),)
        origins = list(dict.fromkeys(str(origin) for node in made.group.nodes for origin in node.origins))
        moved = ix.add(0, 0)
        for value in made.built.operands:
            moved = ix.add(moved, stored_bytes(value))
        return KernelCall(
            kernel.key,
            ranges,
            (serialise(spec.grid[0]), serialise(spec.grid[1]), serialise(spec.grid[2])),
            tuple(origins),
            " + ".join(dict.fromkeys(node.op for node in made.group.nodes)),
            serialise(made.built.flops),
            serialise(moved),
        )

    def _range(self, value: Value) -> Range:
        """Return the range of a buffer that holds ``value``."""
        size: DimExpr = serialise(stored_bytes(value))
        if value in self.inputs:
            return Range(f"input:{value.name}", 0, size)
        if value.is_constant or self.fusion.materialised[value].constant:
            return Range(f"weight:{self._weight(value)}", 0, size)
        root = self._root(value)
        if root in self.outputs:
            return Range(f"output:{self.outputs[root]}", 0, size)
        buffer, offset = self.allocation.locations[self.homes[root]]
        if isinstance(buffer, arena_allocator.OutputBuffer):
            return Range(self.rooms[buffer.number], offset, size)
        return Range(f"arena:{buffer.number}", offset, size)

    def _kind_of(self, value: Value) -> TensorKind:
        """Return what a value is to the plan."""
        if value in self.inputs:
            return TensorKind.INPUT
        if value.is_constant or self.fusion.materialised[value].constant:
            return TensorKind.WEIGHT
        return TensorKind.OUTPUT if self._root(value) in self.outputs else TensorKind.ACTIVATION

    # -- outputs -------------------------------------------------------------------------------------------------

    def _output_ports(self) -> tuple[tuple[Port, ...], tuple[Constant, ...], tuple[Alias, ...]]:
        ports, constants, aliases = [], [], []
        for value, name in zip(self.graph.outputs, self.graph.output_names, strict=True):
            ports.append(Port(name, value.dtype.name, tuple(serialise(dim) for dim in value.shape)))
            size = serialise(stored_bytes(value))
            if value in self.outputs:
                if self.outputs[value] != name:
                    aliases.append(Alias(name, f"output:{self.outputs[value]}", size))
            elif value in self.graph.inputs:
                aliases.append(Alias(name, f"input:{value.name}", size))
            elif value.is_constant and (reference := self._reference(value)).data is not None:
                constants.append(Constant(name, reference))
            else:
                aliases.append(Alias(name, f"weight:{self._weight(value)}", size))
        return tuple(ports), tuple(constants), tuple(aliases)

    # -- notes ---------------------------------------------------------------------------------------------------

    def _memory_notes(self) -> MemoryNotes:
        """Return the bytes of activation memory; upper bounds where dimensions are declared dynamic."""
        outputs = sum(ix.bounds(stored_bytes(value))[1] for value in self.outputs)
        naive = sum(ix.bounds(stored_bytes(value))[1] for group in self.running for value in group.outputs)
        return MemoryNotes(
            planned_bytes=self.allocation.bytes + outputs,
            naive_bytes=naive,
            lower_bound_bytes=arena_allocator.lower_bound(self.live_ranges),
            weight_bytes=sum(weight.bytes for weight in self.weights.values()),
            in_place=sum(1 for made in self.made.values() if made.shares is not None),
        )
