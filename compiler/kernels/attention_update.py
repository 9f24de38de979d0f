"""New rows of caches that an attention writes itself: the keys and values of the tokens whose queries it has.

A workgroup computes the new rows of its head before anything else, and has them in its own memory: no other workgroup
need have written them.  One workgroup of each head also stores them.  The other rows come from the caches.

``new_begin(batch)``                          the place of the first new row in the caches
``new_k(batch, row, step)``, ``new_v``        four neighbouring elements of a new row, as the cache stores them
``store_k(batch, row, step, value)``, ...     writes them
"""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.plan.dtypes import DType
from ..codegen.spec import Hook
from ..ir.graph import Node, Shape, Value
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANES
from ..symbolic.polynomial import Dim
from .context import GroupContext
from .geometry import lanes_of


class NewRows:
    """The hooks of one cache, which ``node`` updates.

    Element ``(n, step)`` of head ``batch`` is the element of ``operand`` at ``coordinates``.
    """

    def __init__(self, context: GroupContext, node: Node, operand: Value, coordinates: Shape) -> None:
        self._context = context
        self.node = node
        self.new = node.operand(1)
        self._before = context.operands.operators.of(node).rows_before
        self._places: list[Shape] = []
        element = ex.register("element", node.output.dtype.compute)

        def computed(at: Shape) -> Expr:
            self._places.append(at)
            return element

        scope = context.operands.scope()
        scope.compute(node.output, computed)
        self._is_plain = scope.read(operand, coordinates) == element

    def fits(self, n: Dim, batch_size: Dim) -> bool:
        """Return whether each of ``batch_size`` heads has rows ``n`` of its own, read as they are."""
        if self._before is None or not self._is_plain or len(set(self._places)) != 1:
            return False
        batches, heads, _, size = self.new.shape
        whole = isinstance(size, int) and size % LANES == 0
        return whole and self._places[0][2] == n and ix.multiply(batches, heads) == batch_size

    @property
    def before(self) -> Value:
        """The number of rows before the new ones."""
        assert self._before is not None
        return self.node.operand(self._before)

    def hooks(self, letter: str) -> list[Hook]:
        """Return the hooks of keys (``k``) or values (``v``)."""
        size = ix.number(self.new.shape[-1])
        row, element = ix.coordinate("row", self.new.shape[2]), lanes_of(ix.coordinate("step", size // LANES))
        at = (*self._places[0][:2], row, element)
        parameters = ("batch", "row", "step")
        operands, update = self._context.operands, self._context.operands.operators.of(self.node).update
        assert update is not None
        place, inside = update(self.node, at, lambda position, read: operands.read(self.node.operand(position), read))
        store = self._context.results.store_part(place, ex.register("value", "f32"), self.node.output, inside)
        value = _rounded(operands.read(self.new, at), self.node.output.dtype)
        return [
            Hook(f"new_{letter}", parameters, LANES, (), value),
            Hook(f"store_{letter}", parameters, LANES, (("value", "vec4<f32>"),), None, (store,)),
        ]

    def begin(self) -> Hook:
        """Return the hook that counts the rows before the new ones."""
        valid = self._context.operands.read(self.before, self._places[0][:1])
        return Hook("new_begin", ("batch",), 1, (), ex.cast(valid, "i32"))


def _rounded(value: Expr, dtype: DType) -> Expr:
    return value if dtype.packing == 1 else ex.unary(f"round_{dtype.name}", value)


def find_new_rows(
    context: GroupContext, updates: Sequence[Node], sources: Sequence[tuple[Value, Shape]], n: Dim, batch_size: Dim
) -> list[NewRows] | None:
    """Return the new rows of each of ``sources``, operands with the coordinates of an element; None if they have none.

    The caches must have as many new rows, behind as many others.
    """
    if len(updates) != len(sources):
        return None
    caches = []
    for operand, coordinates in sources:
        candidates = (NewRows(context, node, operand, coordinates) for node in updates)
        cache = next((each for each in candidates if each.fits(n, batch_size)), None)
        if cache is None:
            return None
        caches.append(cache)
    is_same = caches[0].before is caches[-1].before and caches[0].new.shape[2] == caches[-1].new.shape[2]
    return caches if is_same and len({cache.node for cache in caches}) == len(caches) else None
