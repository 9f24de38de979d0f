"""From fused groups to a plan, in the order of the pipeline's last passes.

The order matters.  Layouts are chosen already.  In-place sharing merges two bindings, so it changes specs; live ranges
follow from the order of the groups; the place of a value decides how a kernel binds it.  Text is written once all of
that is known, and names come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from ...runtime.plan.facts import PlanFacts
from ...runtime.plan.notes import MemoryNotes, PlanNotes
from ...runtime.plan.plan import Command, ComputePass, KernelCall, OutputState, Plan, RepeatedPass, Symbol
from ..compilation import Compilation
from ..fusion import Fusion
from ..ir.graph import Graph, Value
from ..kernels.groups import Group
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import serialise
from . import in_place
from .arena_allocator import LiveRange, lower_bound
from .buffer_map import BufferMap
from .call_info import CallRecorder
from .host_weights import HostWeights
from .kernel_table import KernelTable
from .liveness import Liveness
from .ports import computed_outputs, output_ports, whole_ports
from .sizes import stored_bytes
from .stored_ranges import store_ranges
from .weight_transforms import DeviceWeights, Weights


class Planner:
    """Makes the plan of one graph, in the order :meth:`build_kernels`, :meth:`store_ranges` and :meth:`share_in_place`
    (which may be left out), :meth:`place_values`, :meth:`render_kernels`, :meth:`assemble`.
    """

    def __init__(self, graph: Graph, fusion: Fusion, symbols: Sequence[Symbol], compilation: Compilation) -> None:
        """Take the groups of ``graph`` with their layouts; ``symbols`` are the declared dynamic dimensions.

        Weights are evaluated on the host if ``compilation`` has a ``keep_weight``, else the plan has calls that make
        them on the device.
        """
        self._graph = graph
        self._fusion = fusion
        self._symbols = tuple(symbols)
        self._target = compilation.target
        self._running = [group for group in fusion.groups if not group.constant]
        self._outputs = computed_outputs(graph, fusion)
        self._kernels = KernelTable(fusion, self._symbols, compilation)
        self._liveness = Liveness(self._running)
        self._built: Sequence[Group] = fusion.groups
        self._weights: Weights = DeviceWeights(self._kernels)
        if compilation.keep_weight is not None:
            self._built = self._running  # groups that run once need no kernel, whatever limits it would break
            self._weights = HostWeights(self._weights_read(), compilation.keep_weight, compilation.progress)
        self._buffers = BufferMap(graph.inputs, self._outputs, fusion, self._liveness, self._weights, graph.windows)
        self._ranges: dict[Value, LiveRange] = {}

    def _weights_read(self) -> set[Value]:
        """Return the values that the run reads and that depend on constants alone."""
        groups = self._fusion.materialised
        read = {value for group in self._running for value in group.reads}
        return {value for value in read if value.is_constant or (value in groups and groups[value].constant)}

    def build_kernels(self) -> int:
        """Choose the kernel of every group; return the number of groups.

        Raises the errors of the compiler with the ONNX node at fault.
        """
        return self._kernels.build(self._built)

    def store_ranges(self) -> int:
        """Let kernels find the ranges of what they store; return the number of ranges."""
        gone = store_ranges(self._fusion, self._kernels, self._target)
        for group in gone:
            self._running.remove(group)
        return len(gone)

    def share_in_place(self) -> int:
        """Let results take over the memory of operands that die; return the number of results that do."""
        return in_place.share_in_place(self._running, self._kernels, self._fusion, self._liveness, self._outputs)

    def place_values(self) -> int:
        """Place the values of the run in arenas; return the number of arenas.

        Raises :class:`DeviceLimitError` for a value that the device cannot bind.
        """
        self._ranges = self._liveness.ranges(self._kernels, self._outputs)
        self._buffers.place(self._ranges, self._target)
        for group in self._running:
            self._buffers.bind_for_writing(self._kernels[group.output])
        return len(self._buffers.allocation.arenas)

    def render_kernels(self) -> int:
        """Write the shader of every group, of equal specs once; return the number of shaders."""
        return self._kernels.render()

    def assemble(self, facts: PlanFacts, notes: PlanNotes) -> Plan:
        """Put the plan together: calls with their ranges, weights, ports, and ``facts`` and ``notes`` with those of
        calls.

        Raises :class:`DeviceLimitError` for an input, an output or a weight that the device cannot bind.
        """
        recorder = CallRecorder(self._buffers.kind_of)
        for group in self._running:
            kernel = self._kernels[group.output]
            self._buffers.check_bindings(kernel, self._target)
            recorder.add(group, kernel.built, kernel.overwrites)
        outputs = output_ports(self._graph, self._outputs, self._weights)
        return Plan(
            key="",
            inputs=tuple(whole_ports(self._graph.windows, [(each, each.name) for each in self._graph.inputs])),
            outputs=tuple(outputs.ports),
            symbols=self._symbols,
            kernels=tuple(self._kernels.shaders.values()),
            sources=tuple(self._weights.sources.values()),
            weights=tuple(self._weights.weights.values()),
            commands=self._commands(),
            arenas=tuple(serialise(size) for size in self._buffers.allocation.arenas),
            problems=tuple(self._kernels.problems),
            constants=tuple(outputs.constants),
            aliases=tuple(outputs.aliases),
            states=tuple(self._states()),
            facts=replace(facts, tensors=tuple(recorder.tensors), calls=tuple(recorder.calls)),
            notes=replace(notes, calls=tuple(recorder.notes), memory=self._memory_notes()),
        )

    def _states(self) -> list[OutputState]:
        """Return the outputs that begin as inputs."""
        updates = [node for group in self._running for node in group.updates]
        return [OutputState(self._outputs[node.output], node.operand(0).name) for node in updates]

    def _commands(self) -> tuple[Command, ...]:
        """Return the calls in order: neighbours in one pass, those of a kernel with iterations in one of their own."""
        commands: list[Command] = []
        for iterations, groups in groupby(self._running, lambda group: self._kernels[group.output].iterations):
            calls = tuple(map(self._call, groups))
            if iterations is None:
                commands.append(ComputePass(calls))
            else:
                commands += [RepeatedPass((call,), serialise(iterations)) for call in calls]
        return tuple(commands) or (ComputePass(()),)

    def _call(self, group: Group) -> KernelCall:
        operands = self._kernels[group.output].built.operands
        return self._kernels.call(group.output, tuple(map(self._buffers.range_of, operands)))

    def _memory_notes(self) -> MemoryNotes:
        """Return the bytes of activation memory; upper bounds where dimensions are declared dynamic."""
        outputs = sum(ix.bounds(stored_bytes(value))[1] for value in self._outputs)
        naive = sum(ix.bounds(stored_bytes(value))[1] for group in self._running for value in group.outputs)
        return MemoryNotes(
            planned_bytes=self._buffers.allocation.bytes + outputs,
            naive_bytes=naive,
            lower_bound_bytes=lower_bound(list(self._ranges.values())),
            weight_bytes=sum(weight.bytes for weight in self._weights.weights.values()),
            in_place=sum(kernel.overwrites is not None for kernel in self._kernels),
        )
