"""The kernels of fused groups: equal groups are built once, equal specs rendered once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...runtime.plan.dtypes import INT32, padded_bytes
from ...runtime.plan.errors import ShaderloomError
from ...runtime.plan.plan import Kernel, KernelCall, Range, Symbol
from ..codegen.render import render
from ..codegen.sharing import Problem, SharedKernel, alone, shared
from ..codegen.spec import KernelSpec
from ..compilation import Compilation
from ..fusion import Fusion
from ..ir.graph import Value
from ..kernels.context import GroupContext
from ..kernels.draft import BuiltKernel
from ..kernels.family import build
from ..kernels.groups import Group
from ..kernels.signature import signature
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import dimension_variable, serialise
from ..symbolic.polynomial import Dim
from ..tuning.config_choice import Decision
from .sizes import stored_bytes


@dataclass
class GroupKernel:
    """The kernel of one group; ``overwrites`` is the operand whose memory the result takes over."""

    group: Group
    built: BuiltKernel
    overwrites: Value | None = None

    @property
    def iterations(self) -> Dim | None:
        """Dispatches of the kernel one after another; None for a single one."""
        return self.built.spec.iterations


class KernelTable:
    """The kernel of each group, by the group's output."""

    def __init__(self, fusion: Fusion, symbols: Sequence[Symbol], compilation: Compilation) -> None:
        """Make an empty table; ``symbols`` are the declared dynamic dimensions."""
        self._fusion = fusion
        self._symbols = symbols
        self._compilation = compilation
        self._kernels: dict[Value, GroupKernel] = {}
        self._built: dict[Hashable, tuple[KernelSpec, tuple[int, ...], Dim, tuple[Decision, ...]]] = {}  #: by signature
        self._rendered: dict[tuple[KernelSpec, bool], SharedKernel] = {}  #: by spec, and whether it makes a weight
        self._sent: set[str] = set()  #: keys of kernels that the driver was given
        self.shaders: dict[str, Kernel] = {}  #: the rendered kernels by key, in the order of the groups
        self.problems: dict[Problem, int] = {}  #: numbers that shared kernels read, with their positions in the plan

    def __getitem__(self, output: Value) -> GroupKernel:
        return self._kernels[output]

    def __iter__(self) -> Iterator[GroupKernel]:
        return iter(self._kernels.values())

    def remove(self, output: Value) -> None:
        """Forget the kernel of the group that computes ``output``."""
        del self._kernels[output]

    def build(self, groups: Iterable[Group]) -> int:
        """Choose the kernel of each group; return the number of groups.

        Shaders that transform weights are written at once, since the places of values in memory do not change them: the
        driver can begin.  Raises the errors of the compiler, with the last ONNX node of the group at fault.
        """
        for group in groups:
            try:
                item = self._kernels[group.output] = GroupKernel(group, self._build(group))
                if group.constant and self._compilation.on_kernel is not None:
                    self._render(item.built.spec, True)
            except ShaderloomError as error:
                error.origin = error.origin or group.nodes[-1].origin
                raise
        return len(self._kernels)

    def _build(self, group: Group) -> BuiltKernel:
        """Return a group's kernel; a group that is like an earlier one gets its spec."""
        own = signature(group, self._fusion.materialised)
        earlier = None if own is None else self._built.get(own.key)
        if own is not None and earlier is not None:
            spec, positions, flops, decisions = earlier
            return BuiltKernel(spec, tuple(own.values[position] for position in positions), flops, decisions)
        names = [dimension_variable(symbol.name, symbol.low, symbol.step) for symbol in self._symbols]
        built = build(GroupContext(group, self._fusion.materialised, self._compilation, symbols=names))
        if own is not None:
            positions = tuple(own.values.index(value) for value in built.operands)
            self._built[own.key] = (built.spec, positions, built.flops, built.decisions)
        return built

    def render(self) -> int:
        """Write the shader of each group; return the number of shaders.

        Kernels that differ in sizes alone are one.  Those of weights read their sizes in any case, so that a weight's
        key does not depend on the other groups of a plan.

        Raises the errors of the compiler, with the last ONNX node of the group at fault.
        """
        for spec, shared_kernel in shared(item.built.spec for item in self if not item.group.constant):
            self._keep(spec, False, shared_kernel)
        for item in self:
            try:
                kernel = self._render(item.built.spec, item.group.constant).kernel
            except ShaderloomError as error:
                error.origin = error.origin or item.group.nodes[-1].origin
                raise
            self.shaders.setdefault(kernel.key, kernel)
        return len(self.shaders)

    def _render(self, spec: KernelSpec, is_constant: bool) -> SharedKernel:
        """Return the kernel of a spec, which several groups of the run may share; write it if it is not there."""
        shared_kernel = self._rendered.get((spec, is_constant))
        if shared_kernel is None:
            shared_kernel = alone(spec) if is_constant else SharedKernel(render(spec), ())
            self._keep(spec, is_constant, shared_kernel)
        return shared_kernel

    def _keep(self, spec: KernelSpec, is_constant: bool, rendered: SharedKernel) -> None:
        """Keep the kernel of a spec, and give it to the driver if that does not have it."""
        self._rendered[spec, is_constant] = rendered
        kernel = rendered.kernel
        if self._compilation.on_kernel is not None and kernel.key not in self._sent:
            self._sent.add(kernel.key)
            self._compilation.on_kernel(kernel)

    def call(self, output: Value, ranges: tuple[Range, ...]) -> KernelCall:
        """Return the call of the group that computes ``output``; ``ranges`` are those of its operands."""
        item = self[output]
        spec, nodes = item.built.spec, item.group.nodes
        shared_kernel = self._rendered[spec, item.group.constant]
        kernel = shared_kernel.kernel
        if spec.iterations is not None:
            ranges += (Range("iteration", 0, 16),)
        if any(binding.name == "symbols" for binding in kernel.bindings):
            ranges += (Range("symbols", 0, padded_bytes(len(self._symbols), INT32)),)
        if shared_kernel.problem:
            number = self.problems.setdefault(shared_kernel.problem, len(self.problems))
            ranges += (Range(f"problem:{number}", 0, padded_bytes(len(shared_kernel.problem), INT32)),)
        moved = ix.add(0, 0)
        for value in item.built.operands:
            moved = ix.add(moved, stored_bytes(value))
        return KernelCall(
            kernel.key,
            ranges,
            (serialise(spec.grid[0]), serialise(spec.grid[1]), serialise(spec.grid[2])),
            tuple(dict.fromkeys(str(origin) for node in nodes for origin in node.origins)),
            " + ".join(dict.fromkeys(node.op for node in nodes)),
            serialise(item.built.flops),
            serialise(moved),
        )
