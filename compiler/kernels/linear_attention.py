"""Linear attention: a thread has one column of a head's state, a vector of keys, and goes through the steps.

The columns of a state do not depend on each other.  A column is in memory of the thread while it goes through the
steps of one dispatch; a sequence of more steps takes several, which hand it on in the rows of the result behind the
outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.plan.errors import LimitError
from ...runtime.plan.plan import MOST_ITERATIONS
from ...runtime.plan.record import record
from ..codegen.spec import Hook
from ..ir.coordinates import Sizes
from ..ir.graph import Node
from ..ops.internal.linear_attention import (
    DECAY,
    KEY,
    QUERY,
    RATE,
    STATE,
    VALUE,
    linear_attention_array,
)
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.polynomial import Dim
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .family import KernelFamily, by_position, register_family
from .geometry import linear_grid, unflatten

#: Numbers in memory of a thread: half of what WGSL guarantees
MOST_KEYS = 1024
#: Trips of a thread's loops in one dispatch: drivers end longer ones, and a desktop's watchdog waits two seconds
MOST_TRIPS = 1 << 15


@record
class LinearAttentionConfig:
    """``steps`` of the sequence in a dispatch, ``workgroup`` threads a group."""

    steps: int
    workgroup: int = 64

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError("a dispatch without steps")


class LinearAttention(KernelFamily):
    """``loom.LinearAttention``."""

    name = "linear_attention"

    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        return linear_attention_array(node.attributes, by_position(node, operands))

    def reads_result(self, anchor: Node) -> bool:
        return True

    def build(self, context: GroupContext) -> BuiltKernel:
        """Return the kernel; raises :class:`LimitError` for keys that a thread cannot hold."""
        node = context.anchor
        batch, steps, heads, queries, keys = node.operand(QUERY).shape
        count, group = ix.number(keys), ix.number(queries)
        if count > MOST_KEYS:
            reason = f"linear attention with keys of {count} numbers, a thread holds {MOST_KEYS}"
            raise LimitError(reason, origin=node.origin)
        trips = count * (group + (2 if node.attributes.retrieves else 1)) + group
        most = max(ix.bounds(steps)[1], 1)
        # weights are made by calls that do not repeat
        config = LinearAttentionConfig(most if context.group.constant else max(min(MOST_TRIPS // trips, most), 1))
        repeats = config.steps < most
        iterations = ix.maximum(ix.ceildiv(steps, config.steps), 1)
        if ix.bounds(iterations)[1] > MOST_ITERATIONS:
            raise LimitError(f"linear attention over {ix.text(steps)} steps", origin=node.origin)
        threads = ix.product([batch, heads, node.operand(VALUE).shape[-1]])
        return context.built(
            Draft(
                "linear_attention",
                config,
                _hooks(context, threads, repeats),
                dims={"threads": threads, "steps": steps},
                threads=config.workgroup,
                grid=linear_grid(threads, config.workgroup, context.target),
                rounds=config.steps * (trips + 1) + 2 * count,
                flops=ix.product([4 + 2 * group, steps, count, threads]),
                parameters={
                    "keys": count,
                    "queries": group,
                    "retrieves": node.attributes.retrieves,
                    "decays": node.optional(DECAY) is not None,
                    "repeats": repeats,
                },
                iterations=iterations if repeats else None,
            )
        )


def _hooks(context: GroupContext, threads: Dim, repeats: bool) -> list[Hook]:
    """Return the hooks: elements of the operands at a thread's place, rows of the result, and the store."""
    node = context.anchor
    batch, steps, heads, queries, keys = node.operand(QUERY).shape
    image, head, column = unflatten(ix.coordinate("thread", threads), (batch, heads, node.operand(VALUE).shape[-1]))
    step, query, key = (
        ix.coordinate(name, size) for name, size in (("time", steps), ("query", queries), ("key", keys))
    )
    row = ix.coordinate("row", node.output.shape[2])
    read, state = context.operands.read, node.optional(STATE)
    initial = ex.const(0.0, "f32") if state is None else read(state, (image, head, key, column))
    scaled = read(node.operand(QUERY), (image, step, head, query, key)) * ex.const(node.attributes.scale, "f32")
    value = read(node.operand(VALUE), (image, step, head, column))
    hooks = [
        Hook("query_of", ("thread", "time", "query", "key"), 1, (), scaled),
        Hook("key_of", ("thread", "time", "key"), 1, (), read(node.operand(KEY), (image, step, head, key))),
        Hook("value_of", ("thread", "time"), 1, (), value),
        Hook("rate_of", ("thread", "time"), 1, (), _rate(context, image, step, head)),
        Hook("initial", ("thread", "key"), 1, (), initial),
    ]
    if repeats:
        result = context.operands.load(node.output, (image, head, row, column))
        hooks.append(Hook("result", ("thread", "row"), 1, (), result))
    if node.optional(DECAY) is not None:
        decay = read(node.operand(DECAY), (image, step, head, key))
        hooks.append(Hook("decay_of", ("thread", "time", "key"), 1, (), decay))
    stores = context.results.stores((image, head, row, column), ex.register("value", "f32"))
    hooks.append(Hook("store", ("thread", "row"), 1, (("value", "f32"),), None, stores))
    return hooks


def _rate(context: GroupContext, image: Dim, step: Dim, head: Dim) -> ex.Expr:
    rate = context.anchor.optional(RATE)
    return ex.const(1.0, "f32") if rate is None else context.operands.read(rate, (image, step, head))


register_family(LinearAttention())
