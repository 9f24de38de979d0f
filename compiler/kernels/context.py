"""Context in which a kernel family builds a group: operands, results, choices, and the kernel of its draft.

A family's hooks are functions of index variables of its own.  :meth:`.OperandReader.read` gives the expression of an
operand's element at logical coordinates, :meth:`.ResultWriter.stores` pushes the anchor's result through the epilogue
to the group's output, and :meth:`GroupContext.built` binds every tensor that the hooks touch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..codegen.spec import LONG_WORDS, BoundTensor, Hook, KernelSpec
from ..compilation import Compilation
from ..ir.graph import Node, Value
from ..ops.registry import Registry, registry
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim
from ..tuning.config_choice import Candidate, Decision
from . import loop_trips
from .device_limits import check_limits, check_trips
from .draft import BuiltKernel, Draft
from .groups import Group
from .operand_names import renamed, stored_expressions
from .operands import OperandReader
from .results import ResultWriter

#: Rows up to which a tile is fitted to their number; of more, tiles of any height leave little over
FEW_ROWS = 72


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
        self.operands = OperandReader(group, materialised, operators)
        self.results = ResultWriter(group, self.operands)
        self._decisions: dict[str, Decision] = {}

    @property
    def anchor(self) -> Node:
        """The node whose family builds the kernel."""
        assert self.group.region is not None
        return self.group.region.anchor

    def choose(
        self,
        key: str,
        candidates: Sequence[Candidate],
        cost: Callable[[Candidate], float | None] | None = None,
        rows: Dim = 0,
    ) -> Candidate:
        """Return the configuration for the problem ``key`` among ``candidates``, the best by ``cost`` first.

        ``rows`` are results of which a thread or a workgroup computes several: too many where there are few.
        """
        chosen = self.choices.choose(key, candidates, cost=cost)
        if ix.bounds(rows)[0] <= FEW_ROWS:
            self.choices.tiled |= ix.variables(rows)
        self._decisions[key] = self.choices.decisions[key]
        return chosen

    def built(self, draft: Draft) -> BuiltKernel:
        """Bind every tensor that the hooks touch, keep accesses inside, check the device's limits, make the spec."""
        operands = self.operands
        outputs = {operands.name(output): output for output in (*self.group.also, self.group.output)}
        values = {name: value for value, name in operands.names.items()}
        hooks = operands.accesses.bounded(draft.hooks, {**values, **outputs})
        loaded = _loaded(hooks)
        names = {name: f"x{number}" for number, name in enumerate(loaded)}
        hooks = [renamed(hook, names) for hook in hooks]
        bound = (*(values[name] for name in loaded), *outputs.values())
        bindings = (
            *(BoundTensor(names[name], "read", values[name].dtype.name) for name in loaded),
            *(BoundTensor(name, "read_write", output.dtype.name) for name, output in outputs.items()),
        )
        check_limits(draft, self.group, len(bindings), self.target)
        check_trips(draft, self.group, loop_trips.hook_trips(hooks), self.target)
        spec = KernelSpec(
            draft.template,
            draft.config,
            bindings,
            tuple(hooks),
            tuple(sorted(draft.dims.items())),
            draft.threads,
            draft.grid,
            self.symbols,
            (*self._features(), *draft.features),
            draft.workgroup_bytes,
            tuple(sorted(draft.parameters.items())),
            self.target.inlines_uniforms,
            self.target.by_bits,
            draft.iterations,
        )
        return BuiltKernel(spec, bound, draft.flops, tuple(self._decisions.values()))

    def _features(self) -> tuple[str, ...]:
        """Return the optional features that the text may use: those that are faster on the device."""
        return (LONG_WORDS,) if self.target.prefers_long_words and self.target.has_feature(LONG_WORDS) else ()


def _loaded(hooks: Iterable[Hook]) -> list[str]:
    """Return the names of the operands that hooks load, in the order in which they were bound."""
    loaded: set[str] = set()
    for hook in hooks:
        results = () if hook.result is None else (hook.result,)
        for expression in (*results, *(each for store in hook.stores for each in stored_expressions(store))):
            loaded.update(str(node.payload.operand) for node in ex.loads(expression))
    return sorted((name for name in loaded if name.startswith("x")), key=lambda name: int(name[1:]))
