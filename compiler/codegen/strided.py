"""Kernels that copy elements from regular places, in one form for all of them: the transpositions of weights.

For its vector number q such a copy reads elements ``start + lane * step + sum(q // divisor % modulus * stride)`` of its
source.  Each digit of q that it lacks has a stride of zero.
"""

from __future__ import annotations

from dataclasses import replace

from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES, is_aligned, lane_variable, split_lane
from ..symbolic.polynomial import Dim
from ..symbolic.terms import terms_of
from .spec import KernelSpec, Store
from .writer import Numbers

_DIGITS = 4  #: more than any weight of a window with groups has
_LARGEST = (1 << 31) - 1

#: A divisor and a modulus
_Digit = tuple[int, int]


def strided(spec: KernelSpec, numbers: Numbers) -> KernelSpec:
    """Return the spec with its copy in the common form, whose numbers are added to ``numbers``; else ``spec``."""
    stores = [store for hook in spec.hooks for store in hook.stores]
    if spec.template != "map" or len(stores) != 1 or spec.hooks[0].lanes != LANES:
        return spec
    (hook,) = spec.hooks
    store = stores[0]
    thread = hook.parameters[0]
    position = _common(store, thread, numbers)
    if position is None:
        return spec
    load = ex.load(store.value.payload.operand, store.value.payload.dtype, position, store.value.dtype)
    stored = replace(store, position=ix.substitute(store.position, {thread: _number(thread)}), value=load)
    return replace(spec, hooks=(replace(hook, stores=(stored,)),))


def _number(thread: str) -> Dim:
    """Return the number of a thread, of any copy."""
    return ix.variable(thread, 0, _LARGEST)


def _common(store: Store, thread: str, numbers: Numbers) -> Dim | None:
    """Return where a store's value is read, in the common form; None if it is no copy of that form."""
    if store.value.op != "load" or store.condition is not None or is_aligned(store.value.payload.position):
        return None
    base, step = split_lane(store.value.payload.position)
    if base is None or step < 0:
        return None
    start, strides = 0, dict[_Digit, int]()
    for monomial, coefficient in terms_of(base):
        if not monomial:
            start = coefficient
            continue
        digit = _digit(monomial[0], thread) if len(monomial) == 1 else None
        if digit is None or coefficient < 0:
            return None
        strides[digit] = coefficient
    if start < 0 or len(strides) > _DIGITS:
        return None
    missing = _DIGITS - len(strides)
    number = _number(thread)
    position = ix.add(_field(numbers, start, 0), ix.multiply(_field(numbers, step, 0), lane_variable()))
    for (divisor, modulus), stride in [*sorted(strides.items()), *([((1, 1), 0)] * missing)]:
        part = ix.modulo(ix.floordiv(number, _field(numbers, divisor, 1)), _field(numbers, modulus, 1))
        position = ix.add(position, ix.multiply(part, _field(numbers, stride, 0)))
    return position


def _field(numbers: Numbers, value: int, low: int) -> Dim:
    return ix.variable(numbers.field(value), low, _LARGEST)


def _digit(atom: ix.Atom, thread: str) -> _Digit | None:
    """Return the divisor and the modulus of a part of the thread's number; None for anything else."""
    if atom.kind == "var":
        return (1, _LARGEST) if atom.payload == thread else None
    if atom.kind not in ("floordiv", "mod") or not isinstance(atom.args[1], int):
        return None
    whole, size = atom.args
    terms = terms_of(whole)
    if len(terms) != 1 or len(terms[0][0]) != 1 or terms[0][1] != 1:
        return None
    digit = _digit(terms[0][0][0], thread)
    if digit is None or (digit[1] != _LARGEST and digit[1] % size):
        return None
    divisor, modulus = digit
    if atom.kind == "mod":
        return divisor, size
    return divisor * size, modulus if modulus == _LARGEST else modulus // size
