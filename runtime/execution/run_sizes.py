"""Sizes of a plan for values of its symbols: shapes and bytes of its ports, its arenas, and the workgroups of calls."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice

import numpy as np

from ..plan.dimension import dimension_function
from ..plan.errors import ShaderloomError
from ..plan.plan import (
    MOST_ITERATIONS,
    MOST_WORK,
    KernelCall,
    Plan,
    RepeatedPass,
    dispatch_count,
    uniform_values,
)
from ..plan.record import record
from .ports import PortSize, port_size

#: Combinations of symbol values whose sizes are kept
MOST_CACHED_SIZES = 256

#: Workgroups in x, y, z
Grid = tuple[int, int, int]


@record(eq=False)
class RunSizes:
    """Sizes that follow from the values of the symbols.

    ``iterations`` are those of the plan's repeated passes in order, ``grids`` in the order of
    :attr:`PlanSizes.grid_calls`.
    """

    symbols: dict[str, int]
    uniform: np.ndarray  #: what the kernels read: for each symbol the number of whole steps in its size, i32
    inputs: dict[str, PortSize]
    outputs: dict[str, PortSize]
    arenas: tuple[int, ...]
    iterations: tuple[int, ...]
    grids: tuple[Grid, ...]


class PlanSizes:
    """Computes the sizes of a plan, all in one function, and keeps those of the latest values of its symbols.

    Calls with the same grid share it: ``grid_calls`` are the first calls of each, ``grid_of`` has for each call the
    position of its grid.  Thread-safe.
    """

    def __init__(self, plan: Plan, tensor_cap: int, fault: type[ShaderloomError]) -> None:
        self._plan = plan
        self._tensor_cap = tensor_cap
        self._fault = fault
        distinct: dict[str, tuple[int, KernelCall]] = {}
        for call in plan.calls:
            distinct.setdefault(repr(call.grid), (len(distinct), call))
        self.grid_calls = tuple(call for _, call in distinct.values())
        self.grid_of = tuple(distinct[repr(call.grid)][0] for call in plan.calls)
        ports = (*plan.inputs, *plan.outputs)
        counts = [command.count for command in plan.commands if isinstance(command, RepeatedPass)]
        self._repeated = len(counts)
        self._names = tuple(symbol.name for symbol in plan.symbols)
        self._evaluate = dimension_function(
            [
                *(size for port in ports for size in port.shape),
                *plan.arenas,
                *counts,
                *(size for call in self.grid_calls for size in call.grid),
            ],
            self._names,
        )
        self._sizes: OrderedDict[tuple[int, ...], RunSizes] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, values: tuple[int, ...]) -> RunSizes:
        """Return the sizes for values of the symbols, in the plan's order.

        Raises :class:`LimitError` for a tensor beyond the cap, and the plan's fault for a negative size, for too many
        iterations or dispatches, or for an output that is larger than what it is an alias of.
        """
        with self._lock:
            sizes = self._sizes.get(values)
            if sizes is None:
                sizes = self._sizes[values] = self._computed(values)
                if len(self._sizes) > MOST_CACHED_SIZES:
                    self._sizes.popitem(last=False)
            else:
                self._sizes.move_to_end(values)
            return sizes

    def _computed(self, values: tuple[int, ...]) -> RunSizes:
        plan, symbols = self._plan, dict(zip(self._names, values))
        numbers = self._evaluate(*values)
        rest = iter(numbers)
        inputs, outputs = (
            {port.name: port_size(port, tuple(islice(rest, len(port.shape))), self._tensor_cap) for port in ports}
            for ports in (plan.inputs, plan.outputs)
        )
        arenas = tuple(islice(rest, len(plan.arenas)))
        if min(numbers[: len(numbers) - 3 * len(self.grid_calls)], default=0) < 0:
            raise self._fault(f"the plan has a negative size for {symbols}")
        iterations = tuple(islice(rest, self._repeated))
        if max(iterations, default=0) > MOST_ITERATIONS:
            count = f"{max(iterations):,} times; at most {MOST_ITERATIONS:,} are allowed"
            raise self._fault(f"the plan repeats a pass {count}")
        dispatches = dispatch_count(plan.commands, symbols)
        if dispatches > MOST_WORK:
            raise self._fault(f"a run of the plan has {dispatches:,} dispatches; at most {MOST_WORK:,} are allowed")
        self._check_aliases(inputs, outputs)
        grids = tuple(zip(rest, rest, rest))
        uniform = np.array(uniform_values(plan.symbols, symbols), np.int32)
        return RunSizes(symbols, uniform, inputs, outputs, arenas, iterations, grids)

    def _check_aliases(self, inputs: Mapping[str, PortSize], outputs: Mapping[str, PortSize]) -> None:
        if not self._plan.aliases:
            return
        held = {f"weight:{weight.key}": weight.bytes for weight in self._plan.weights}
        for kind, ports in (("input", inputs), ("output", outputs)):
            held.update((f"{kind}:{name}", size.padded) for name, size in ports.items())
        for alias in self._plan.aliases:
            needed, present = outputs[alias.output].padded, held[alias.source]
            if needed > present:
                raise self._fault(f"'{alias.output}' has {needed} bytes, its source '{alias.source}' {present}")
