"""Statements that write results: whole vectors where four neighbours are aligned, single elements elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.plan.dtypes import BY_NAME
from ...runtime.plan.errors import DeviceLimitError
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANE, LANES, is_aligned, split_lane
from .emitter import Emitter
from .spec import Store
from .types import VECTOR_TYPES
from .writer import bare


def owns_words(store: Store) -> bool:
    """Return whether each store writes whole words.

    Either four lanes store four aligned neighbours (one word, or two), or the tensor is packed and has rank 0.
    """
    if BY_NAME[store.dtype].compute not in VECTOR_TYPES:
        return False
    return is_aligned(store.position) or (store.position == 0 and BY_NAME[store.dtype].packing > 1)


def emit_store(store: Store, lanes: int, emitter: Emitter, wide: frozenset[object]) -> None:
    """Append the statements of one store to ``emitter``; ``wide`` are the operands declared with four elements."""
    if lanes == 1:
        _emit_element(store, emitter, wide)
        return
    if owns_words(store):
        condition = None if store.condition is None else emitter.without_lane(store.condition)
        if condition is not None or store.condition is None:
            _emit_vector(store, condition, emitter)
            return
    for lane in range(LANES):
        condition = None if store.condition is None else emitter.at_lane(store.condition, lane)
        position = ix.substitute(store.position, {LANE: lane})
        single = Store(store.operand, store.dtype, position, emitter.at_lane(store.value, lane), condition)
        _emit_element(single, emitter, wide)


def _emit_vector(store: Store, condition: Expr | None, emitter: Emitter) -> None:
    def write() -> None:
        base, _ = split_lane(store.position)
        assert base is not None
        position = bare(emitter.index(ix.floordiv(base, LANES)))
        value = str(emitter.vector(store.value))
        storage = BY_NAME[store.dtype]
        if storage.packing > 1:
            value = emitter.call(f"pack_{storage.format}", [value], LANES)
        emitter.write(f"{store.operand}[{position}] = {bare(value)};")

    _guarded(condition, emitter, write)


def _emit_element(store: Store, emitter: Emitter, wide: frozenset[object]) -> None:
    if BY_NAME[store.dtype].packing > 1:
        raise DeviceLimitError(f"a {store.dtype} result needs whole words: four neighbours by one thread")

    def write() -> None:
        value = emitter.scalar(store.value)
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
