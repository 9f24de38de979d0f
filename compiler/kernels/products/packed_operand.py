"""A packed weight as kernels read it: element by element, or words, scales and zero points of four columns.

The operands are those of :mod:`...ops.internal.packed_weights`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...ir.graph import Node, Value
from ...ops.internal.packed_weights import WORD_BITS, unit_of
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES, lane_variable
from ...symbolic.polynomial import Dim
from ...tuning.gemm_tiles import SharedTile
from ..context import GroupContext


def padding_bytes(tile: SharedTile) -> int:
    """Return the bytes of workgroup memory behind the rows of a packed weight's tile: at most 8 vectors for each of the
    threads that store side by side what they read of one column (``near`` of the template)."""
    near = min(tile.threads * LANES // tile.block_n, 4)
    return 16 * (8 // near) * tile.block_k if near > 1 else 0


def words_of(context: GroupContext, packed: Value, number: int) -> Hook:
    """Return the hook ``load_words(n, word)`` of packed words, with ``number`` behind its name."""
    vectors, words, _ = packed.shape
    at = (ix.coordinate("n", vectors), ix.coordinate("word", words), lane_variable())
    return Hook(f"load_words{number}", ("n", "word"), LANES, (), context.operands.read(packed, at))


@record(slots=False)
class PackedOperand:
    """The weight of ``node``, whose words are operand 1; scales and zero points are operand ``scales`` and the next."""

    context: GroupContext
    node: Node
    scales: int = 2

    @property
    def bits(self) -> int:
        return int(self.node.attributes.bits)

    @property
    def block(self) -> int:
        return int(self.node.attributes.block)

    @property
    def unit(self) -> int:
        """Neighbours along the terms that share a word, at least 8."""
        return unit_of(self.bits)

    @property
    def words(self) -> Value:
        return self.node.operand(1)

    @property
    def scale(self) -> Value:
        return self.node.operand(self.scales)

    @property
    def zero_point(self) -> Value:
        return self.node.operand(self.scales + 1)

    @property
    def zero(self) -> float | None:
        """The zero point, if it is one number."""
        return None if self.zero_point.rank else float(self._read(self.zero_point, ()).payload)

    def element(self, n: Dim, k: Dim) -> Expr:
        """Return an element of the weight, in f32."""
        many = WORD_BITS // self.bits
        group, lane = ix.floordiv(n, LANES), ix.modulo(n, LANES)
        word = self.context.operands.read(self.words, (group, ix.floordiv(k, many), lane))
        shift = ex.cast(ex.coordinate(ix.multiply(ix.modulo(k, many), self.bits)), "u32")
        code = ex.binary("and", ex.binary("shr", word, shift), ex.const((1 << self.bits) - 1, "u32"))
        at = (group, ix.floordiv(k, self.block), lane)
        return (ex.cast(code, "f32") - self._read(self.zero_point, at)) * self._read(self.scale, at)

    def _read(self, parameter: Value, coordinates: Sequence[Dim]) -> Expr:
        return ex.cast(self.context.operands.read(parameter, coordinates if parameter.rank else ()), "f32")

    def loads(self, number: int, terms: int) -> list[Hook]:
        """Return hooks that load a word, a scale and, where blocks have them, a zero point of each of four columns:
        ``load_words(n, word)``, ``load_scale(n, step)`` and ``load_zero(n, step)``, with ``number`` behind their names.

        A step has ``terms`` terms, all of one block.
        """
        vectors, words, _ = self.words.shape
        hooks = [words_of(self.context, self.words, number)]
        steps = ix.floordiv(ix.multiply(words, WORD_BITS // self.bits), terms)
        block = ix.floordiv(ix.multiply(ix.coordinate("step", steps), terms), self.block)
        for name, parameter in (("load_scale", self.scale), ("load_zero", self.zero_point)):
            if parameter.rank:
                value = self._read(parameter, (ix.coordinate("n", vectors), block, lane_variable()))
                hooks.append(Hook(f"{name}{number}", ("n", "step"), LANES, (), value))
        return hooks
