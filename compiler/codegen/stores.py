"""Statements that write results: whole vectors where four neighbours are aligned, single elements elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.plan.dtypes import BY_NAME, FLOAT32
from ...runtime.plan.errors import DeviceLimitError
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANE, LANES, is_aligned, split_lane
from ..symbolic.polynomial import Dim
from .emitter import Emitter
from .spec import Store
from .types import VECTOR_TYPES, wgsl_type
from .writer import bare


def owns_words(store: Store) -> bool:
    """Return whether each store writes whole words.

    Either four lanes store four aligned neighbours (one word, or two), or the tensor is packed and has rank 0.
    """
    if BY_NAME[store.dtype].compute not in VECTOR_TYPES:
        return False
    return is_aligned(store.position) or (store.position == 0 and BY_NAME[store.dtype].packing > 1)


def emit_store(store: Store, lanes: int, emitter: Emitter, wide: frozenset[object], ranged: Dim | None = None) -> None:
    """Append the statements of one store to ``emitter``; ``wide`` are the operands declared with four elements.

    With ``ranged``, the number of the result's elements, they extend the range of what the thread stores.
    """
    if lanes == 1:
        _emit_element(store, emitter, wide, ranged)
        return
    if owns_words(store):
        condition = None if store.condition is None else emitter.without_lane(store.condition)
        if condition is not None or store.condition is None:
            _emit_vector(store, condition, emitter, ranged)
            return
    for lane in range(LANES):
        condition = None if store.condition is None else emitter.at_lane(store.condition, lane)
        position = ix.substitute(store.position, {LANE: lane})
        single = Store(store.operand, store.dtype, position, emitter.at_lane(store.value, lane), condition)
        _emit_element(single, emitter, wide, ranged)


def _emit_vector(store: Store, condition: Expr | None, emitter: Emitter, ranged: Dim | None) -> None:
    def write() -> None:
        base, _ = split_lane(store.position)
        assert base is not None
        position = bare(emitter.index(ix.floordiv(base, LANES)))
        value = str(emitter.vector(store.value))
        if ranged is not None:
            value = _extend(store, value, LANES, emitter, ranged)
        storage = BY_NAME[store.dtype]
        if storage.packing > 1:
            value = emitter.call(f"pack_{storage.format}", [value], LANES)
        emitter.write(f"{store.operand}[{position}] = {bare(value)};")

    _guarded(condition, emitter, write)


def _extend(store: Store, value: str, lanes: int, emitter: Emitter, elements: Dim) -> str:
    """Extend the range of the thread by the number that is stored; return the text of ``value`` for the store.

    The last vector may end behind the last element.
    """
    value = emitter.name(value)
    stored = value if store.dtype == FLOAT32.name else emitter.call(f"round_{store.dtype}", [value], lanes)
    if lanes == LANES and ix.divide(elements, LANES) is None:
        kind = wgsl_type("f32", LANES)
        position, end = emitter.index(ix.substitute(store.position, {LANE: 0})), emitter.index(elements)
        stored = f"select({kind}(), {stored}, vec4<i32>({position}) + vec4<i32>(0, 1, 2, 3) < vec4<i32>({end}))"
    emitter.write(f"{emitter.call('extend_range', [stored], lanes)};")
    return value


def _emit_element(store: Store, emitter: Emitter, wide: frozenset[object], ranged: Dim | None) -> None:
    if BY_NAME[store.dtype].packing > 1:
        raise DeviceLimitError(f"a {store.dtype} result needs whole words: four neighbours by one thread")

    def write() -> None:
        value = emitter.scalar(store.value)
        if ranged is not None:
            value = _extend(store, value, 1, emitter, ranged)
        if store.operand in wide:
            vector, component = ix.floordiv(store.position, LANES), ix.modulo(store.position, LANES)
            emitter.write(
                f"{store.operand}[{bare(emitter.index(vector))}][{emitter.index(component)}] = {bare(value)};"
            )
        else:
            emitter.write(f"{store.operand}[{bare(emitter.index(store.position))}] = {bare(value)};")

    _guarded(store.condition, emitter, write)


def _guarded(condition: Expr | None, emitter: Emitter, write: Callable[[], None]) -> None:
    if condition is None:
        write()
    elif condition.op == "const":
        if condition.payload:
            write()
    else:
        with emitter.scope(f"if ({bare(emitter.scalar(condition))}) {{"):
            write()
