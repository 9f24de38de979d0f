"""Upper bounds of the trip counts of one thread's loops.

Some drivers leave the loops of a thread, without an error, after ``Target.max_loop_trips`` trips: results are wrong
then.  So every kernel states an upper bound when it is built (:meth:`~.context.GroupContext.built` checks it against
the limit), and families that have forms with fewer trips choose them (:func:`filter_by_trips`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..codegen.spec import Hook
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from ..target import Target

#: Helper functions with loops: operation -> rounds for 32-bit and for 64-bit integers
_LOOPS = {"div": (0, 64), "mod": (0, 64), "fmod": (0, 64), "pow": (32, 64)}

Choice = TypeVar("Choice")


def upper_bound(size: Dim) -> int:
    """Return the largest value of a dimension, at least 0."""
    return max(ix.bounds(size)[1], 0)


def filter_by_trips(target: Target, candidates: Sequence[Choice], rounds: Callable[[Choice], int]) -> list[Choice]:
    """Return the candidates whose trip counts the target allows, or all candidates if it allows none of them."""
    limit = target.max_loop_trips
    if limit is None:
        return list(candidates)
    return [each for each in candidates if rounds(each) <= limit] or list(candidates)


def hook_trips(hooks: Iterable[Hook]) -> int:
    """Return the trip counts inside one call of each hook: 64-bit divisions and integer powers have loops."""
    return sum(_of_hook(hook) for hook in hooks)


def _of_hook(hook: Hook) -> int:
    values = [store.value for store in hook.stores]
    if hook.result is not None:
        values.append(hook.result)
    rounds = 0
    for node in {node: None for value in values for node in ex.walk(value)}:
        short, long = _LOOPS.get(node.op, (0, 0))
        if node.dtype in ("i64", "u64"):
            rounds += long * (LANES if hook.lanes == LANES else 1)
        elif node.dtype in ("i32", "u32"):
            rounds += short
    return rounds
