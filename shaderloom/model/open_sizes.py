"""Dynamic shapes inferred at run time: what is compiled for size after size is compiled once for a range of them.

Texts of other lengths, a tensor that a loop appends to, and one whose size depends on data have another size each time.
A :class:`SizeHistory` remembers the sizes that plans were compiled for: those of axes, and integers that are compiled
in, such as the number of non-zero elements.  At the third different size, the sizes that differ become dimensions of a
plan, as if they had been declared dynamic, within the range of :mod:`.served_sizes`; the plans of the sizes before
stay.  Sizes whose differences are constant share one symbol: a loop-carried tensor and a mask that is one longer still
match.  From then on a size outside of all ranges gets the next one at once.  Ranges of a model's inputs are narrow at
first; where a plan shows that no tile of a product follows from a size, further ranges of it are wide.  Where one
shows that the order of two sizes decides a shape, a plan serves sizes in one order (:mod:`.size_orders`).

Sessions use it for the inputs of a model that is one plan, programs for each of their stages.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.plan.plan import Symbol
from ..runtime.plan.record import record
from ..runtime.plan.size_range import SizeRange
from .served_sizes import LOW, TILED, served_with
from .size_orders import SizeOrder, SymbolicSize, Term, ValueAxis, ordered

if TYPE_CHECKING:
    from ..compiler.symbolic.polynomial import Dim

#: For each value its name with its type and shape, and its elements as bytes if they are compiled in
Key = tuple[tuple[str, tuple[Any, ...]], ...]
Sizes = Mapping[str, tuple[int, ...]]

#: The number of different sizes that opens an axis, and the numbers that are remembered: of plans for a size of their
#: own and of as many for ranges, of ranges, and of their keys
OPENS, REMEMBERED, RANGES, RANGE_KEYS = 3, 8, 64, 128
#: Largest integer, and largest number of integers, that are taken for sizes
LARGEST, MOST_ELEMENTS = 1 << 24, 8
#: Largest steps that are tried one after the other, where no range with step 1 compiles: sizes that a network halves
#: and doubles are multiples of a power of two
STEPS = (1, 8, 64)
#: Least upper bound that is tried where a whole range does not compile; larger ones are twice what was met
LEAST_HIGH = 64
#: Ranges of the same axes that were refused with all steps until others are not tried, if none was possible
REFUSED_RANGES = 2


def open_dim(size: int | SymbolicSize) -> Dim:
    """Return a size as an integer of the compiler."""
    if isinstance(size, int):
        return size
    from ..compiler.symbolic import polynomial as ix
    from ..compiler.symbolic.dimensions import dimension

    return ix.add(dimension(size.symbol.name, *size.symbol.range), size.offset)


@record(slots=False)
class GeneralisedShape:
    """The open sizes of values, their ranges, and the orders of these sizes that hold."""

    sizes: Mapping[ValueAxis, SymbolicSize]
    orders: tuple[SizeOrder, ...] = ()

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(sorted({size.symbol for size in self.sizes.values()}, key=lambda symbol: symbol.name))

    @property
    def ranges(self) -> dict[str, SizeRange]:
        """The range of each symbol by name."""
        return {symbol.name: symbol.range for symbol in self.symbols}

    @property
    def places(self) -> frozenset[tuple[ValueAxis, int]]:
        """The open axes, each with the least size of the wide range that has its range."""
        return frozenset((place, served_with(size.symbol.low, tiled=False).low) for place, size in self.sizes.items())

    @property
    def is_possible(self) -> bool:
        """Whether the ranges have several sizes."""
        return all(symbol.low < symbol.high for symbol in self.symbols)

    def __str__(self) -> str:
        return ", ".join([*(f"{name} {sizes}" for name, sizes in self.ranges.items()), *map(str, self.orders)])

    def values(self, key: Key) -> dict[str, int] | None:
        """Return the sizes of symbols by name; None if those of ``key`` are outside of their ranges."""
        key_sizes = _sizes(key)
        values: dict[str, int] = {}
        for (name, position), symbolic in self.sizes.items():
            sizes = key_sizes.get(name, ())
            if position >= len(sizes):
                return None
            size = sizes[position] - symbolic.offset
            if values.setdefault(symbolic.symbol.name, size) != size or not symbolic.symbol.range.allows(size):
                return None
        return values

    def key(self, key: Key) -> Key | None:
        """Return ``key`` with symbols in place of sizes; None if its sizes are not among those that are served."""
        values = self.values(key)
        if values is None or not all(order.holds(values) for order in self.orders):
            return None
        key_sizes = _sizes(key)
        return tuple(
            (name, (*_kind(described), *self.replaced(name, key_sizes[name])) if name in key_sizes else described)
            for name, described in key
        )

    def frame(self, key: Key) -> str:
        """Return a digest of ``key`` with names in place of open sizes, the same for all ranges of these."""
        sizes = _sizes(key)
        return _digest(
            tuple(
                (name, (*_kind(described), *map(str, self.replaced(name, sizes[name])))) if name in sizes else described
                for name, described in key
            )
        )

    def replaced(self, name: str, sizes: Sequence[int]) -> tuple[int | SymbolicSize, ...]:
        """Return the ``sizes`` of a value with those that are open as symbols."""
        return tuple(self.sizes.get((name, position), size) for position, size in enumerate(sizes))

    def dim(self, size: int | SymbolicSize) -> Dim:
        """Return a size as an integer of the compiler that knows the orders."""
        if isinstance(size, int) or not self.orders:
            return open_dim(size)
        from ..compiler.symbolic import polynomial as ix
        from ..compiler.symbolic.dimensions import dimension

        def ordered_dimension(symbol: Symbol) -> Dim:
            order = next((order for order in self.orders if order.lesser == symbol.name), None)
            if order is None:
                return dimension(symbol.name, *symbol.range)
            greater = next(other for other in self.symbols if other.name == order.greater)
            return dimension(symbol.name, *symbol.range, below=ix.add(ordered_dimension(greater), 1 - order.offset))

        return ix.add(ordered_dimension(size.symbol), size.offset)

    def ordered(self, values: Mapping[str, int], one: Term, other: Term) -> GeneralisedShape:
        """Return the sizes that have the order of two terms that they have at ``values``."""
        sizes, order = ordered(self.sizes, values, one, other)
        return GeneralisedShape(sizes, self.orders if order is None else (*self.orders, order))

    def to_json(self) -> list[Any]:
        rows = [
            [*place, size.symbol.name, *size.symbol.range, size.offset] for place, size in sorted(self.sizes.items())
        ]
        return [rows, [[order.lesser, order.greater, order.offset] for order in self.orders]]

    @classmethod
    def from_json(cls, data: Any) -> GeneralisedShape:
        """Decode what :meth:`to_json` wrote.  Raises ValueError or TypeError for anything else."""
        rows, orders = data
        return cls(
            {
                (str(name), int(position)): SymbolicSize(Symbol(str(symbol), *map(int, bounds)), int(offset))
                for name, position, symbol, *bounds, offset in rows
            },
            tuple(SizeOrder(str(lesser), str(greater), int(offset)) for lesser, greater, offset in orders),
        )


@record
class CompiledSizes:
    """Sizes that a plan was compiled for, with the digest of its key without them.

    ``own``: the plan is for these sizes alone.
    """

    frame: str
    sizes: Sizes
    own: bool


@dataclass
class SizeHistory:
    """The sizes that plans were compiled for, and the ranges that are open.

    ``names`` are the names of dimensions for the axes that have one; they are those of symbols then.
    """

    names: Mapping[ValueAxis, str] = field(default_factory=dict)
    narrow: bool = True  #: whether ranges are narrow until it is known that wide ones serve as well
    plans: list[CompiledSizes] = field(default_factory=list)
    generals: list[GeneralisedShape] = field(default_factory=list)  #: newest first
    range_keys: list[str] = field(default_factory=list)  #: digests of the keys of their plans
    #: whether compiled-in integers may be sizes; not after all plans of open sizes failed with them
    elements: bool = True
    #: for axes that were opened in vain, each with the least size of the range, the number of :data:`STEPS` tried
    refused: dict[frozenset[tuple[ValueAxis, int]], int] = field(default_factory=dict)
    #: symbols that get wide ranges, since a narrow one was refused, or its plan not fitted to it: frame of keys, name
    wide: list[tuple[str, str]] = field(default_factory=list)
    #: pairs of sizes whose order decides a shape: frame of keys, and the two
    compared: list[tuple[str, Term, Term]] = field(default_factory=list)

    def general_keys(self, key: Key) -> Iterator[Key]:
        """Yield the keys of the plans of open sizes that cover ``key``, the newest first."""
        return (general_key for general in self.generals if (general_key := general.key(key)) is not None)

    def generalise(self, key: Key) -> GeneralisedShape | None:
        """Return the sizes to open, so that one plan covers ``key`` and those like it.

        Return None where ``key`` has a plan of its own, where that is premature, and where it was refused.
        """
        frame, now = _frame(key, self.elements), _sizes(key, self.elements)
        if any(plan.own and (plan.frame, plan.sizes) == (frame, now) for plan in self.plans):
            return None
        for general in self.generals:
            if _digest(general.key(key)) in self.range_keys:
                return general
        history = [plan.sizes for plan in self.plans if plan.frame == frame]
        if len(history) < OPENS - 1:
            return None
        groups = _groups(now, history)
        for chosen in (groups, *([group] for group in groups if len(groups) > 1)):
            attempts = [self._opened(chosen, step, key) for step in STEPS] if chosen else []
            if attempts and any(symbol.low == symbol.high for symbol in attempts[0].symbols):
                continue
            for tried in range(self._first_attempt(attempts[0]) if attempts else 0, len(attempts)):
                attempt, places = attempts[tried], attempts[0].places
                if attempt.is_possible and attempt not in attempts[:tried]:
                    self.refused[places] = tried
                    return attempt
                self.refused[places] = tried + 1
        if any(name not in _sizes(key, False) for group in groups for name, _ in group.members):
            self.elements, self.plans = False, []  # perhaps possible without them
        return None

    def _first_attempt(self, general: GeneralisedShape) -> int:
        """Return the first of :data:`STEPS` to try for these axes, by what was refused and possible in other ranges."""
        alike = [other for other in self.generals if other.sizes.keys() == general.sizes.keys()]
        tried = self.refused.get(general.places, 0)
        if alike:
            return max(tried, int(all(any(symbol.step > 1 for symbol in other.symbols) for other in alike)))
        axes = general.sizes.keys()
        refused = [places for places, steps in self.refused.items() if steps == len(STEPS)]
        in_vain = sum({axis for axis, _ in places} == axes for places in refused)
        return len(STEPS) if in_vain >= REFUSED_RANGES else tried

    def _opened(self, groups: Sequence[_Group], largest_step: int, key: Key) -> GeneralisedShape:
        """Return the sizes of groups as symbols: with steps, and where it is known to serve as well, in wide ranges."""

        def opened(wide: Collection[str] | None) -> GeneralisedShape:
            sizes: dict[ValueAxis, SymbolicSize] = {}
            for group in groups:
                name = self._symbol_name(group, sizes)
                sizes.update(group.opened(largest_step, name, tiled=wide is not None and name not in wide))
            return GeneralisedShape(sizes)

        widest = opened(None)
        frame = widest.frame(key)
        if largest_step > 1 or not self.narrow:
            return widest
        general = opened({name for of, name in self.wide if of == frame})
        for of, one, other in self.compared:
            values = general.values(key) if of == frame else None
            general = general if values is None else general.ordered(values, one, other)
        return general

    def _symbol_name(self, group: _Group, others: Mapping[ValueAxis, SymbolicSize]) -> str:
        """Return the name of a group's dimension in the model, or else its first axis."""
        name, position = group.first
        wanted = self.names.get(group.first, f"{name}[{position}]")
        taken = {size.symbol.name for size in others.values()}
        return f"{name}[{position}]" if wanted in taken else wanted

    def compare(self, key: Key, general: GeneralisedShape, pairs: Iterable[tuple[Term, Term]]) -> bool:
        """Record that the orders of sizes decide a shape of the plan for ``general``; return whether that is new."""
        frame = general.frame(key)
        new = [item for one, other in pairs if (item := (frame, one, other)) not in self.compared]
        self.compared = [*self.compared, *new][-RANGE_KEYS:]
        return bool(new)

    def note(self, key: Key, general: GeneralisedShape | None = None, tiled: Collection[str] = ()) -> None:
        """Record that a plan was compiled for ``key``: for all sizes that are ``general``, or else for its own.

        ``tiled`` are the symbols to whose ranges its kernels are fitted (:attr:`PlanFacts.tiled`).
        """
        if general is not None:
            narrow = [symbol.name for symbol in general.symbols if symbol.high <= TILED[-1]]
            self._widen(general.frame(key), (name for name in narrow if name not in tiled))
            self.generals = [general, *(other for other in self.generals if other != general)][:RANGES]
            self.range_keys = [*self.range_keys[1 - RANGE_KEYS :], _digest(general.key(key))]
        plan = CompiledSizes(_frame(key, self.elements), _sizes(key, self.elements), general is None)
        oldest = [other for other in self.plans if other.own == plan.own][: 1 - REMEMBERED]
        self.plans = [*(other for other in self.plans if other not in oldest), plan]

    def refuse(self, key: Key, general: GeneralisedShape) -> None:
        """Record that no plan is possible for the sizes that :meth:`generalise` gave for ``key``."""
        self.generals = [other for other in self.generals if other != general]
        self.refused[general.places] = self.refused.get(general.places, 0) + 1
        self._widen(general.frame(key), (symbol.name for symbol in general.symbols))

    def _widen(self, frame: str, names: Iterable[str]) -> None:
        """Record the symbols whose next ranges are wide, for keys of a frame."""
        wide = dict.fromkeys((frame, name) for name in names)
        self.wide = [*(pair for pair in self.wide if pair not in wide), *wide][-RANGE_KEYS:]

    def to_json(self) -> dict[str, Any]:
        return {
            "plans": [[plan.frame, {**plan.sizes}, plan.own] for plan in self.plans],
            "generals": [general.to_json() for general in self.generals],
            "range_keys": self.range_keys,
            "elements": self.elements,
            "refused": [[sorted(places), tried] for places, tried in self.refused.items()],
            "wide": list(self.wide),
            "compared": [[frame, [*one], [*other]] for frame, one, other in self.compared],
        }

    def restore(self, data: Any) -> None:
        """Take over what :meth:`to_json` wrote in another process; leave the history as it is for anything else."""
        try:
            plans = [
                CompiledSizes(str(frame), {str(name): tuple(map(int, row)) for name, row in sizes.items()}, bool(own))
                for frame, sizes, own in data["plans"]
            ]
            generals = [GeneralisedShape.from_json(rows) for rows in data["generals"]]
            range_keys = list(map(str, data["range_keys"]))
            refused = {
                frozenset(((str(name), int(axis)), int(low)) for (name, axis), low in places): int(tried)
                for places, tried in data["refused"]
            }
            wide = [(str(frame), str(name)) for frame, name in data["wide"]]
            compared = [
                (str(frame), (str(one), int(first)), (str(other), int(second)))
                for frame, (one, first), (other, second) in data["compared"]
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            return
        self.plans, self.generals, self.range_keys, self.refused = plans, generals, range_keys, refused
        self.elements, self.wide, self.compared = bool(data.get("elements")), wide, compared


@record(slots=False)
class _Group:
    """Axes whose sizes differ by constants; ``first`` has the smallest, and ``values`` are those that it has had."""

    members: Mapping[ValueAxis, int]
    first: ValueAxis
    values: tuple[int, ...]

    def opened(self, largest_step: int, name: str, *, tiled: bool) -> dict[ValueAxis, SymbolicSize]:
        """Return the sizes as one symbol, in steps of a power of two up to ``largest_step`` that divides all values.

        ``tiled`` is that of :func:`served_with`.
        """
        least = self.members[self.first]
        step = math.gcd(largest_step, *self.values)
        low, high, _ = served_with(least, tiled=tiled)
        if largest_step > 1:  # smaller or larger sizes, or those between, were refused
            met = [value for value in self.values if low <= value <= high]
            low = max(low, 1 << (min(met).bit_length() - 1))
            low += -low % step
            high = min(high, max(LEAST_HIGH, 1 << (2 * max(met) - 1).bit_length()))
        symbol = Symbol(name, low, high - (high - low) % step, step)
        return {member: SymbolicSize(symbol, size - least) for member, size in self.members.items()}


def _groups(now: Sizes, history: Sequence[Sizes]) -> list[_Group]:
    """Return the axes that differ from those in the history, together where their differences are constant."""
    by_difference: dict[tuple[int, ...], dict[ValueAxis, int]] = {}
    for name, sizes in now.items():
        for position, size in enumerate(sizes):
            differences = tuple(other[name][position] - size for other in history)
            if any(differences):
                by_difference.setdefault(differences, {})[name, position] = size
    groups = []
    for differences, members in by_difference.items():
        first = min(members, key=lambda member: members[member])
        values = (members[first], *(members[first] + each for each in differences if members[first] + each >= LOW))
        if members[first] >= LOW and max(members.values()) + max(0, *differences) <= LARGEST:
            groups.append(_Group(members, first, values))
    return groups


def _sizes(key: Key, elements: bool = True) -> dict[str, tuple[int, ...]]:
    """Return shapes of the values that are not compiled in, and ``elements`` of small integer tensors that are."""
    sizes = {}
    for name, described in key:
        if len(described) == 2:
            sizes[name] = described[1]
        elif elements and len(described) == 3 and described[0] in ("int32", "int64"):
            numbers = np.frombuffer(described[2], described[0])
            if numbers.size <= MOST_ELEMENTS:
                sizes[name] = tuple(numbers.tolist())
    return sizes


def sizes_text(sizes: Mapping[str, Sequence[int | SymbolicSize]]) -> str:
    """Return sizes of values as text."""
    return ", ".join(f"{name}={'x'.join(map(str, row)) or 'scalar'}" for name, row in sizes.items())


def key_text(key: Key, general: GeneralisedShape | None = None) -> str:
    """Return the sizes of a key as text; those that are ``general`` by name, with their ranges."""
    sizes = _sizes(key)
    if general is None:
        return sizes_text(sizes)
    return f"{sizes_text({name: general.replaced(name, row) for name, row in sizes.items()})} ({general})"


def _kind(described: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the description of a value without its sizes."""
    return (described[0], len(described[1])) if len(described) == 2 else (*described[:2], "compiled in")


def _digest(key: Key | None) -> str:
    return hashlib.sha256(repr(key).encode()).hexdigest()


def _frame(key: Key, elements: bool) -> str:
    """Return a digest of everything in a key except sizes."""
    sized = _sizes(key, elements)
    digest = hashlib.sha256()
    for name, described in key:
        digest.update(repr((name, _kind(described) if name in sized else described)).encode())
    return digest.hexdigest()
