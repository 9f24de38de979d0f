"""Sizes that stay open: a stage whose inputs come in ever new sizes is compiled once for a range of them.

What a loop appends to, and what follows from how much was found in data, has another size each time.  A state
remembers the sizes that it was compiled for.  When the third one comes, the axes in which they differ become dimensions
of a plan, as if they had been declared dynamic.  Axes that have always differed by the same number share one: what a
loop carries, and a mask that is one longer, still fit together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..compiler import index as ix
from ..compiler.dimensions import dimension
from ..compiler.staging import Operand
from ..runtime.plan import Symbol

#: What decides how a step is compiled: (name, what :meth:`~.values.Held.describe` says of the value) for each value
Key = tuple[tuple[str, tuple[Any, ...]], ...]
Axis = tuple[str, int]  #: name of a value, and one of its axes
Shapes = Mapping[str, tuple[int, ...]]

#: The number of different sizes that opens an axis, and how many are remembered
OPENS, REMEMBERED = 3, 8
#: Open sizes begin here: 0 and 1 are special everywhere, and get plans of their own
LOW = 2
#: The least upper bound of open sizes; larger ones are powers of two
LEAST_HIGH = 64


@dataclass(frozen=True, slots=True)
class OpenAxis:
    """The size of an axis: that of ``symbol`` and ``offset`` more."""

    symbol: Symbol
    offset: int


@dataclass(frozen=True)
class Opened:
    """The axes of a state's values that are open, and their ranges."""

    axes: Mapping[Axis, OpenAxis]

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(sorted({axis.symbol for axis in self.axes.values()}, key=lambda symbol: symbol.name))

    def key(self, key: Key) -> Key | None:
        """``key`` with open axes in place of their sizes; None if those are none that it stands for."""
        shapes = _shapes(key)
        sizes: dict[Symbol, int] = {}
        for (name, axis), found in self.axes.items():
            shape = shapes.get(name, ())
            if axis >= len(shape):
                return None
            size = shape[axis] - found.offset
            if sizes.setdefault(found.symbol, size) != size or not found.symbol.range.allows(size):
                return None
        return tuple(
            (name, (described[0], self._replaced(name, shapes[name])) if name in shapes else described)
            for name, described in key
        )

    def _replaced(self, name: str, shape: Sequence[int]) -> tuple[int | OpenAxis, ...]:
        return tuple(self.axes.get((name, axis), size) for axis, size in enumerate(shape))

    def operand(self, name: str, operand: Operand) -> Operand:
        """The value for the compiler, its open axes symbolic."""
        if operand.known is not None:
            return operand
        shape = tuple(
            ix.add(dimension(size.symbol.name, *size.symbol.range), size.offset) if isinstance(size, OpenAxis) else size
            for size in self._replaced(name, tuple(map(ix.number, operand.shape)))
        )
        return replace(operand, shape=shape)


@dataclass
class SizesSeen:
    """The sizes that a state was compiled for, and what is open."""

    #: for each plan what tells its key from others but sizes, and its shapes
    plans: list[tuple[bytes, Shapes]] = field(default_factory=list)
    opened: Opened | None = None
    #: a plan of open sizes could not be had: each size is compiled on its own
    closed: bool = False

    def open_key(self, key: Key) -> Key | None:
        """The key of the plan of open sizes that serves ``key``, if there may be one."""
        return None if self.opened is None else self.opened.key(key)

    def widen(self, key: Key) -> Opened | None:
        """What to open so that one plan serves ``key`` and others like it; None if it is too early, or no use."""
        if self.closed:
            return None
        frame, now = _frame(key), _shapes(key)
        history = [shapes for other, shapes in self.plans if other == frame]
        if len(history) < OPENS - 1:
            return None
        groups: dict[tuple[int, ...], list[Axis]] = {}
        for name, shape in now.items():
            for axis, size in enumerate(shape):
                differences = tuple(shapes[name][axis] - size for shapes in history)
                if any(differences):
                    groups.setdefault(differences, []).append((name, axis))
        axes: dict[Axis, OpenAxis] = {}
        for differences, members in groups.items():
            sizes = {(name, axis): now[name][axis] for name, axis in members}
            first = min(members, key=lambda member: sizes[member])
            least = sizes[first]
            if least < LOW:
                return None
            high = max(LEAST_HIGH, 1 << (2 * (least + max(0, *differences)) - 1).bit_length())
            symbol = Symbol(f"{first[0]}[{first[1]}]", LOW, high)
            axes.update((member, OpenAxis(symbol, size - least)) for member, size in sizes.items())
        return Opened(axes) if axes else None

    def note(self, key: Key, opened: Opened | None, succeeded: bool) -> None:
        """Remember that a plan was made for ``key``: of the sizes that were ``opened``, or else of its own."""
        self.plans = [*self.plans[1 - REMEMBERED :], (_frame(key), _shapes(key))]
        if opened is not None and succeeded:
            self.opened = opened
        elif opened is not None:
            self.closed = True


def _shapes(key: Key) -> Shapes:
    """Shapes of the values whose elements are not compiled in."""
    return {name: described[1] for name, described in key if len(described) == 2}


def _frame(key: Key) -> bytes:
    """A digest of all that a key has but sizes."""
    digest = hashlib.sha256()
    for name, described in key:
        fixed = (described[0], len(described[1])) if len(described) == 2 else described
        digest.update(repr((name, fixed)).encode())
    return digest.digest()
