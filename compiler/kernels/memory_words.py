"""Words of packed bytes that are read from memory as they are, where an expression joins four neighbours."""

from __future__ import annotations

from ...runtime.plan.dtypes import INT8, UINT8, UINT32
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic import substitution
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANES


def word_in_memory(codes: tuple[Expr, ...]) -> Expr | None:
    """Return the load of a word of memory whose bytes, in order, are ``codes``; None for any others."""
    loads = [code.args[0] if code.op == "cast" and code.dtype == "u32" else code for code in codes]
    first = loads[0].payload
    if loads[0].op != "load" or first.dtype not in (INT8.name, UINT8.name):
        return None
    word = ix.divide(first.position, LANES)
    neighbours = [
        ex.load(first.operand, first.dtype, ix.add(first.position, place), each.dtype)
        for place, each in enumerate(loads)
    ]
    if word is None or any(each is not neighbour for each, neighbour in zip(loads, neighbours, strict=True)):
        return None
    return ex.load(first.operand, UINT32.name, word, "u32")


def with_words(value: Expr) -> Expr:
    """Return the expression with loads of whole words where it joins the bytes of one."""

    def visit(node: Expr, args: tuple[Expr, ...]) -> Expr:
        joined = word_in_memory(args) if node.op == "word" else None
        return joined or substitution.rebuild(node, args)

    result: Expr = ex.fold(value, visit)
    return result
