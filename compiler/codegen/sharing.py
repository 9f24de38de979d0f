"""Kernels that several problems share: texts that differ in sizes alone become one.

Such a kernel reads what differs from a uniform, ``problem``, with a field for each number.  A number that is the same
in all problems is spelled out, and numbers that are the same as each other in every problem are one field.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from ...runtime.plan.errors import ShaderloomError
from ...runtime.plan.plan import Binding, Kernel
from ...runtime.plan.record import record
from ..symbolic.lanes import LANES
from .hidden_uniforms import hide
from .render import PLACE_OF_PROBLEM, render, with_key
from .spec import KernelSpec
from .strided import strided
from .writer import Numbers

_FIELD = re.compile(r"\bproblem\.n(\d+)\b")

#: The least and the largest size that a text does not spell
_SIZE, _LARGEST = LANES, (1 << 31) - 1

#: The values of a kernel's fields for one problem, in their order
Problem = tuple[int, ...]


@record
class SharedKernel:
    """A kernel with the numbers of one of its problems."""

    kernel: Kernel
    problem: Problem


@record
class _Outline:
    """A kernel whose text has a field for every number, and the numbers of one problem."""

    kernel: Kernel
    values: Problem


def alone(spec: KernelSpec) -> SharedKernel:
    """Return a kernel that reads all its numbers: the same for any plan, and for all copies from regular places."""
    numbers = Numbers()
    common = strided(spec, numbers)
    if common is not spec and len(spec.dims) == 1:
        ((name, size),) = spec.dims
        copy = _copy(replace(common, dims=((name, _SIZE),), grid=(1, 1, 1)), len(numbers.values))
        if copy is not None and isinstance(size, int) and _SIZE <= size <= _LARGEST:
            return SharedKernel(copy, (*numbers.values, size))
    kernel = render(common, numbers)
    return _shared(kernel, [tuple(numbers.values)], spelled=False, hidden=spec.hides_uniforms)[0]


@lru_cache(maxsize=64)
def _copy(spec: KernelSpec, fields: int) -> Kernel | None:
    """Return the kernel of copies in the common form, which has ``fields``, that differ in these and one size alone.

    None if its text has other numbers.
    """
    numbers = Numbers()
    numbers.values = [0] * fields
    kernel = render(spec, numbers)
    if len(numbers.values) != fields + 1:
        return None
    return _shared(kernel, [tuple(numbers.values)], spelled=False, hidden=spec.hides_uniforms)[0].kernel


def shared(specs: Iterable[KernelSpec]) -> Iterator[tuple[KernelSpec, SharedKernel]]:
    """Yield the kernel of each spec when it is written; those whose texts differ in numbers alone have one.

    A driver can begin with the first ones while the others are written, so those of a form of their own come first: in
    convolutional networks they take drivers longest.  A spec that cannot be written is left out.
    """
    alike: dict[Hashable, list[KernelSpec]] = {}
    for spec in dict.fromkeys(specs):
        alike.setdefault(_form(spec), []).append(spec)
    for several in sorted(alike.values(), key=len):
        yield from _shared_of_form(several)


def _shared_of_form(specs: Sequence[KernelSpec]) -> Iterator[tuple[KernelSpec, SharedKernel]]:
    """Yield the kernels of specs of one form."""
    texts: dict[str, dict[KernelSpec, _Outline]] = {}
    apart = list(specs) if len(specs) == 1 else []
    for spec in specs if not apart else ():
        with suppress(ShaderloomError):
            outline = _outline(spec)
            texts.setdefault(outline.kernel.key, {})[spec] = outline
    for outlines in texts.values():
        if len(outlines) == 1:
            apart += outlines
            continue
        spec, outline = next(iter(outlines.items()))
        problems = [each.values for each in outlines.values()]
        members = _shared(outline.kernel, problems, spelled=True, hidden=spec.hides_uniforms)
        yield from zip(outlines, members, strict=True)
    for spec in apart:
        with suppress(ShaderloomError):
            yield spec, SharedKernel(render(spec), ())


def _form(spec: KernelSpec) -> Hashable:
    """Return what specs have in common whose texts may differ in numbers alone."""
    hooks = tuple((hook.name, hook.lanes, hook.registers, len(hook.stores)) for hook in spec.hooks)
    return spec.template, spec.config, spec.operands, hooks, spec.threads, repr(spec.parameters)


def _outline(spec: KernelSpec) -> _Outline:
    numbers = Numbers()
    return _Outline(render(spec, numbers), tuple(numbers.values))


def _shared(kernel: Kernel, problems: Sequence[Problem], *, spelled: bool, hidden: bool) -> list[SharedKernel]:
    """Return the kernel for each problem.

    ``spelled``: numbers that all have in common are written out.  ``hidden``: a driver would inline the others.
    """
    fields: dict[Hashable, int] = {}
    places: list[int] = []  # where each field is read first
    texts: list[str] = []
    for place, column in enumerate(zip(*problems, strict=True)):
        if spelled and len(set(column)) == 1:
            texts.append(str(column[0]))
            continue
        number = fields.setdefault(column if spelled else place, len(places))
        if number == len(places):
            places.append(place)
        texts.append(f"problem.n{number}")
    wgsl = _FIELD.sub(lambda match: texts[int(match[1])], kernel.wgsl)
    bindings = kernel.bindings
    declared = ""
    if places:
        members = ", ".join(f"n{number}: i32" for number in range(len(places)))
        declared = f"struct Problem {{ {members} }}\n"
        declared += f"@group(0) @binding({len(bindings)}) var<uniform> problem: Problem;\n"
        bindings += (Binding("problem", "uniform", "Problem"),)
    wgsl = wgsl.replace(PLACE_OF_PROBLEM, declared)
    if hidden and places:
        wgsl = hide(wgsl, "problem", "numbers", [f"n{number}" for number in range(len(places))])
    final = with_key(replace(kernel, wgsl=wgsl, bindings=bindings))
    return [SharedKernel(final, tuple(problem[place] for place in places)) for problem in problems]
