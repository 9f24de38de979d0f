"""Dynamic shapes inferred at run time: a stage whose input sizes keep changing is compiled once for a range of them.

A tensor that a loop appends to, and one whose size depends on data, has another size each time.  A state remembers the
sizes that it was compiled for: those of axes, and integers that are compiled in, such as the number of non-zero
elements.  At the third different size, the sizes that differ become dimensions of a plan, as if they had been declared
dynamic.  Sizes whose differences are constant share one symbol: a loop-carried tensor and a mask that is one longer
still match.

A plan derives its dimensions from the shapes of its inputs.  One that only a compiled-in integer determines gets an
input of its own, a *size input*: a tensor of that many rows, without elements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...compiler.staging.partial_compile import StageInput
from ...compiler.symbolic import polynomial as ix
from ...compiler.symbolic.dimensions import dimension
from ...runtime.plan.dtypes import UINT8
from ...runtime.plan.plan import Symbol
from ...runtime.plan.record import record
from ..steps import SizeInput

#: Cache key of a step: for each value its name and :meth:`~.execution.values.RuntimeValue.describe`
Key = tuple[tuple[str, tuple[Any, ...]], ...]
#: Name of a value, and one of its axes; for a compiled-in value one of its elements
ValueAxis = tuple[str, int]
Sizes = Mapping[str, tuple[int, ...]]

#: The number of different sizes that opens an axis, and the number remembered
OPENS, REMEMBERED = 3, 8
#: Smallest open size: 0 and 1 are special everywhere, and get plans of their own
LOW = 2
#: The least upper bound of open sizes; larger ones are powers of two
LEAST_HIGH = 64
#: Largest integer, and largest number of integers, that are taken for sizes
LARGEST, MOST_ELEMENTS = 1 << 24, 8


@record
class SymbolicSize:
    """A size equal to ``symbol`` plus ``offset``."""

    symbol: Symbol
    offset: int

    @property
    def dim(self) -> ix.Dim:
        return ix.add(dimension(self.symbol.name, *self.symbol.range), self.offset)


@record(slots=False)
class GeneralisedShape:
    """The open sizes of a state's values, and their ranges."""

    sizes: Mapping[ValueAxis, SymbolicSize]

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(sorted({size.symbol for size in self.sizes.values()}, key=lambda symbol: symbol.name))

    def key(self, key: Key) -> Key | None:
        """Return ``key`` with symbols in place of sizes; None if its sizes are outside of their ranges."""
        given = _sizes(key)
        found: dict[Symbol, int] = {}
        for (name, position), symbolic in self.sizes.items():
            sizes = given.get(name, ())
            if position >= len(sizes):
                return None
            size = sizes[position] - symbolic.offset
            if found.setdefault(symbolic.symbol, size) != size or not symbolic.symbol.range.allows(size):
                return None
        return tuple(
            (name, (*_kind(described), *self._replaced(name, given[name])) if name in given else described)
            for name, described in key
        )

    def _replaced(self, name: str, sizes: Sequence[int]) -> tuple[int | SymbolicSize, ...]:
        return tuple(self.sizes.get((name, position), size) for position, size in enumerate(sizes))

    def stage_input(self, name: str, value: StageInput) -> StageInput:
        """Return the value for the compiler, with its open sizes as symbols."""
        if value.static_value is None:
            sizes = tuple(map(ix.number, value.shape))
            return replace(value, shape=tuple(map(_dim, self._replaced(name, sizes))))
        if not any((name, element) in self.sizes for element in range(min(value.static_value.size, MOST_ELEMENTS))):
            return value
        elements = np.empty(value.static_value.size, object)
        elements[:] = [_dim(size) for size in self._replaced(name, value.static_value.reshape(-1).tolist())]
        return replace(value, static_value=elements.reshape(value.static_value.shape))

    def size_inputs(self, inputs: Mapping[str, StageInput]) -> dict[str, SizeInput]:
        """Return inputs, by name, for the symbols that no axis of the stage inputs determines."""
        exact = {place: size.symbol for place, size in self.sizes.items() if not size.offset}
        determined = {symbol for (name, _), symbol in exact.items() if inputs[name].static_value is None}
        return {
            f"rows of {symbol.name}": SizeInput(*place, symbol)
            for place, symbol in exact.items()
            if symbol not in determined
        }


@dataclass
class SizeHistory:
    """The sizes that a state was compiled for, and those that are open."""

    #: for each plan the digest of its key without sizes, and its sizes
    plans: list[tuple[bytes, Sizes]] = field(default_factory=list)
    general: GeneralisedShape | None = None
    #: whether compiled-in integers may be sizes; not after a plan of open sizes failed with them
    elements: bool = True
    #: no plan of open sizes is possible: each size is compiled on its own
    closed: bool = False

    def general_key(self, key: Key) -> Key | None:
        """Return the key of the plan of open sizes that covers ``key``, if there may be one."""
        return None if self.general is None else self.general.key(key)

    def generalise(self, key: Key) -> GeneralisedShape | None:
        """Return the sizes to open, so that one plan covers ``key`` and those like it; None if that is premature or
        useless.
        """
        if self.closed:
            return None
        frame, now = _frame(key, self.elements), _sizes(key, self.elements)
        history = [sizes for other, sizes in self.plans if other == frame]
        if len(history) < OPENS - 1:
            return None
        groups: dict[tuple[int, ...], list[ValueAxis]] = {}
        for name, sizes in now.items():
            for position, size in enumerate(sizes):
                differences = tuple(other[name][position] - size for other in history)
                if any(differences):
                    groups.setdefault(differences, []).append((name, position))
        found: dict[ValueAxis, SymbolicSize] = {}
        for differences, members in groups.items():
            here = {(name, position): now[name][position] for name, position in members}
            first = min(members, key=lambda member: here[member])
            least, most = here[first], max(here.values()) + max(0, *differences)
            if least < LOW or most > LARGEST:
                return None
            high = max(LEAST_HIGH, 1 << (2 * (least + max(0, *differences)) - 1).bit_length())
            symbol = Symbol(f"{first[0]}[{first[1]}]", LOW, high)
            found.update((member, SymbolicSize(symbol, size - least)) for member, size in here.items())
        return GeneralisedShape(found) if found else None

    def note(self, key: Key, general: GeneralisedShape | None, succeeded: bool) -> None:
        """Record that a plan was compiled for ``key``: for all sizes that are ``general``, or else for its own."""
        if general is not None and succeeded:
            self.general = general
        elif general is not None and any(name not in _sizes(key, False) for name, _ in general.sizes):
            self.elements, self.plans = False, []  # perhaps possible without them
        elif general is not None:
            self.closed = True
        self.plans = [*self.plans[1 - REMEMBERED :], (_frame(key, self.elements), _sizes(key, self.elements))]


def size_stage_input(symbol: Symbol) -> StageInput:
    """Return the value of a :class:`SizeInput` for the compiler."""
    return StageInput(UINT8, (dimension(symbol.name, *symbol.range), 0))


def _dim(size: int | SymbolicSize) -> ix.Dim:
    return size.dim if isinstance(size, SymbolicSize) else size


def _sizes(key: Key, elements: bool = True) -> dict[str, tuple[int, ...]]:
    """Return shapes of the values that are not compiled in, and ``elements`` of small integer tensors that are."""
    found = {}
    for name, described in key:
        if len(described) == 2:
            found[name] = described[1]
        elif elements and len(described) == 3 and described[0] in ("int32", "int64"):
            numbers = np.frombuffer(described[2], described[0])
            if numbers.size <= MOST_ELEMENTS:
                found[name] = tuple(numbers.tolist())
    return found


def _kind(described: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the description of a value without its sizes."""
    return (described[0], len(described[1])) if len(described) == 2 else (*described[:2], "compiled in")


def _frame(key: Key, elements: bool) -> bytes:
    """Return a digest of everything in a key except sizes."""
    sized = _sizes(key, elements)
    digest = hashlib.sha256()
    for name, described in key:
        digest.update(repr((name, _kind(described) if name in sized else described)).encode())
    return digest.digest()
