"""Ranges of the integers that a program reads: those that are declared, and the widest that fit the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ..compiler.staging.partial_compile import Advance
from ..compiler.staging.program_graph import PendingNode
from ..compiler.symbolic import polynomial as ix
from ..compiler.symbolic.polynomial import Undecidable
from ..runtime.bundle.program import Step
from ..runtime.plan.errors import LimitError, ShaderloomError, ShapeError, UnsupportedError
from ..runtime.plan.size_range import SizeRange

#: Upper bounds of an integer of which nothing is known: the first for which the stages fit the target
UPPER_BOUNDS = (4096, 1024, 256, 64)
#: Sizes of operands that are tried as upper bounds
MOST_EXTENTS = 3


class SmallerRanges(Exception):
    """Raised where a later side of a branch does not fit the target for ranges that an earlier one has; ``bounds`` are
    the largest sizes to try next, by symbol.
    """

    def __init__(self, bounds: Mapping[str, int]) -> None:
        super().__init__(bounds)
        self.bounds = bounds


class ProgramRanges:
    """Ranges by symbol: those ``declared``, and those in use while a program is compiled, ``by_symbol``.

    Ranges that are not declared have at most the bounds in ``most``.  ``compares`` says whether a run may decide what
    the ranges leave open: once none is found without that, and where there are no ranges to find.
    """

    def __init__(self, declared: Mapping[str, SizeRange], most: Mapping[str, int]) -> None:
        self.declared = dict(declared)
        self.by_symbol: dict[str, SizeRange] = {}
        self.compares = True
        self._most = most
        self._refused: ShaderloomError | None = None  #: what was refused last for the ranges of symbols
        self._guilty: tuple[str, ...] = ()  #: these, the last that a run reads before it

    def refuse(self, symbols: tuple[str, ...]) -> bool:
        """Return whether what was refused last was refused for the ranges of these symbols."""
        return self._guilty == symbols

    def search(
        self,
        symbols: tuple[str, ...],
        tries: tuple[int, ...],
        follow: Callable[[], tuple[Step, ...]],
        extents: Sequence[int] = (),
        *,
        negative: bool = False,
    ) -> tuple[Step, ...]:
        """Return the steps that ``follow`` gives for the declared ranges of symbols, or for the first of ``tries``,
        their upper bounds, with which these fit the target; from 1 on if the shapes do not fit for 0, and up to one of
        ``extents`` if they do not fit beyond.  Integers that may be ``negative`` are so down to as much below 0, where
        all that follows takes them, and be it with comparisons.  Where the shapes fit for no range, runs compare sizes.

        Symbols that the other side of a branch reads, too, have their ranges.
        """
        try:
            return self._search(symbols, tries, follow, extents, negative=negative, compares=False)
        except ShapeError:
            if not self.refuse(symbols):
                raise
        return self._search(symbols, tries, follow, negative=negative, compares=True)

    def _search(
        self,
        symbols: tuple[str, ...],
        tries: tuple[int, ...],
        follow: Callable[[], tuple[Step, ...]],
        extents: Sequence[int] = (),
        *,
        negative: bool = False,
        compares: bool,
    ) -> tuple[Step, ...]:
        """Search for ranges with which a run ``compares`` sizes or not; see :meth:`search`."""
        chosen = [symbol for symbol in symbols if symbol not in self.by_symbol]
        is_open = any(symbol not in self.declared for symbol in chosen)
        most = min((self._most.get(symbol, tries[0]) for symbol in chosen), default=tries[0])
        tries = tuple(high for high in tries if high <= most) or tries[-1:]
        before = dict(self.by_symbol)
        earlier = self._refused, self._guilty
        for high in tries if is_open else tries[:1]:
            attempts = ((-high, False), (-high, True)) if negative else ()
            attempts = (*attempts, (0, compares), (1, compares)) if is_open and high else ((0, compares),)
            for low, with_comparisons in attempts:
                self.by_symbol = {
                    **before,
                    **{each: self.declared.get(each) or SizeRange(low, high) for each in chosen},
                }
                outer, self.compares = self.compares, with_comparisons
                try:
                    return follow()
                except (LimitError, ShapeError, Undecidable) as error:
                    if low < 0:
                        self.by_symbol, (self._refused, self._guilty) = dict(before), earlier
                        continue
                    is_inner = error is self._refused
                    self._guilty = self._guilty if is_inner else symbols
                    if low == 0 or isinstance(error, LimitError):
                        self._refused = _refused_range(error, {symbol: self.by_symbol[symbol] for symbol in symbols})
                    self.by_symbol = dict(before)
                finally:
                    self.compares = outer
                if is_inner or isinstance(self._refused, LimitError):
                    break
            if not isinstance(self._refused, LimitError):
                break
        assert self._refused is not None, "there is an upper bound to try"
        if isinstance(self._refused, LimitError) and self._guilty == symbols and not chosen:
            highs = {each: self.by_symbol[each].high for each in symbols if each not in self.declared}
            lower = {each: [bound for bound in UPPER_BOUNDS if bound < high] for each, high in highs.items()}
            if lower and all(lower.values()):
                raise SmallerRanges({each: bounds[0] for each, bounds in lower.items()})
        refused = self._refused
        if is_open and self._guilty == symbols and not isinstance(refused, LimitError):
            for high in (high for high in extents if 1 < high < tries[0]):
                with suppress(LimitError, ShapeError, UnsupportedError):
                    return self._search(symbols, (high,), follow, compares=compares)
            self._guilty = symbols
            raise refused
        raise self._refused


def may_be_negative(name: str, readers: Sequence[PendingNode]) -> bool:
    """Return whether integers that are read may mean something below 0 to a node."""
    for item in readers:
        definition = item.node.definition
        positions = definition.negative_inputs if definition is not None else (0,)  # the trip count of a Loop
        if any(name == operand for position, operand in enumerate(item.inputs) if position in positions):
            return True
    return False


def most_elements(readers: Sequence[PendingNode], reached: Advance) -> int | None:
    """Return the most elements that a part of a split operator can count; None where no such part reads a number."""
    definitions = ((item, item.node.definition) for item in readers)
    operands = [
        reached.values[item.inputs[0]]
        for item, definition in definitions
        if definition is not None and definition.counts_elements
    ]
    return min((ix.bounds(value.elements)[1] for value in operands), default=None)


def extents(readers: Sequence[PendingNode], reached: Advance) -> list[int]:
    """Return the sizes of what nodes read, the largest first: what selects from it has at most as many."""
    values = (reached.values[name] for item in readers for name in item.inputs if name in reached.values)
    sizes = {size for value in values for size in value.shape if isinstance(size, int) and size > 0}
    return sorted(sizes, reverse=True)[:MOST_EXTENTS]


def upper_bounds(most: int | None) -> tuple[int, ...]:
    """Return upper bounds of an integer, the one that is tried first in front."""
    return UPPER_BOUNDS if most is None else (most, *(high for high in UPPER_BOUNDS if high < most))


def _refused_range(error: Exception, ranges: Mapping[str, SizeRange]) -> ShaderloomError:
    """Return the error for stages that cannot be compiled for these ranges."""
    named = ", ".join(f"{name} from {sizes}" for name, sizes in ranges.items())
    hint = "compile the bundle for other ranges (--range)"
    if isinstance(error, ShaderloomError):
        return type(error)(f"for {named}: {error.reason}", origin=error.origin, tensor=error.tensor, hint=hint)
    return UnsupportedError(f"for {named}: a choice of the compiler holds for some of the sizes only", hint=hint)
