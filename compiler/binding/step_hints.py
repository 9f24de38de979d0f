"""Suggest steps with which declared ranges of sizes would compile, for the remedy of an error.

Networks that halve a picture some times and double it again as often fit together for some multiples of a power of two
only; splits into patches are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...runtime.plan.size_range import SizeRange
from ..ir.graph import Shape
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import declared_dimension, dimension

STEPS = (2, 4, 8, 16, 32)

#: Input shapes by name
Shapes = Mapping[str, Shape]


def advise_steps(shapes: Shapes, compiles: Callable[[Shapes], bool]) -> str | None:
    """Suggest steps for the ranges in ``shapes`` with which the model does not compile; return None if no step helps.

    Suggests the smallest of :data:`STEPS` for which ``compiles`` holds, for as few dimensions as possible.  Every
    candidate is verified by compiling for it.
    """
    ranges = _declared(shapes)
    for step in STEPS:
        chosen = {name: coarser for name, sizes in ranges.items() if (coarser := _coarser(sizes, step)) is not None}
        if not chosen or not compiles(_with_ranges(shapes, chosen)):
            continue
        for name in sorted(chosen):
            fewer = {other: sizes for other, sizes in chosen.items() if other != name}
            if fewer and compiles(_with_ranges(shapes, fewer)):
                chosen = fewer
        return _remedy(chosen)
    return None


def _remedy(ranges: Mapping[str, SizeRange]) -> str:
    declared = ", ".join(f'"{name}": {tuple(sizes)}' for name, sizes in sorted(ranges.items()))
    options = " ".join(f"--dynamic {name}={':'.join(map(str, sizes))}" for name, sizes in sorted(ranges.items()))
    return f"declare it in steps: dynamic={{{declared}}}, or {options}"


def _declared(shapes: Shapes) -> dict[str, SizeRange]:
    """Return the declared ranges that ``shapes`` depend on, by name."""
    ranges: dict[str, SizeRange] = {}

    def note(atom: ix.Atom) -> None:
        declared = declared_dimension(atom.payload) if atom.kind == "var" else None
        if declared is not None:
            low, high = (declared.step * count + declared.offset for count in (atom.low, atom.high))
            ranges[declared.name] = SizeRange(low, high, declared.step)

    for shape in shapes.values():
        for dim in shape:
            ix.transform(dim, note)
    return ranges


def _coarser(sizes: SizeRange, step: int) -> SizeRange | None:
    """Return the multiples of ``step`` in a range; None unless there are several, and fewer than before."""
    if step % sizes.step or sizes.low % sizes.step or step == sizes.step:
        return None
    low, high = -(-sizes.low // step) * step, sizes.high // step * step
    return SizeRange(low, high, step) if low < high else None


def _with_ranges(shapes: Shapes, ranges: Mapping[str, SizeRange]) -> Shapes:
    def replace(atom: ix.Atom) -> ix.Dim | None:
        declared = declared_dimension(atom.payload) if atom.kind == "var" else None
        if declared is None or declared.name not in ranges:
            return None
        return ix.divide(dimension(declared.name, *ranges[declared.name]), declared.step)

    return {name: tuple(ix.transform(dim, replace) for dim in shape) for name, shape in shapes.items()}
