"""Rewrite expressions: with other arguments, leaves or variables.  What is rebuilt is simplified again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import polynomial as ix
from .expr import (
    BINARY,
    COMPARISONS,
    UNARY,
    Expr,
    as_index,
    binary,
    bitcast,
    cast,
    compare,
    coordinate,
    fold,
    guard,
    load,
    select,
    unary,
    word,
)
from .polynomial import Dim


def rebuild(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """Rebuild ``node`` with other arguments, simplified again."""
    if args == node.args:
        return node
    if node.op in BINARY:
        return binary(node.op, *args)
    if node.op in COMPARISONS:
        return compare(node.op, *args)
    if node.op in UNARY:
        return unary(node.op, *args)
    if node.op == "cast":
        return cast(args[0], node.dtype)
    if node.op == "bitcast":
        return bitcast(args[0], node.dtype)
    if node.op == "select":
        return select(*args)
    if node.op == "guard":
        return guard(*args)
    if node.op == "word":
        return word(args)
    raise AssertionError(node.op)


def replace(value: Expr, leaf: Callable[[Expr], Expr | None]) -> Expr:
    """Replace leaves (loads, registers, coordinates, constants); ``leaf`` gives the new expression or None.

    Opaque run-time values inside positions and coordinates are rewritten with the same rule.
    """
    memo: dict[Expr, Expr] = {}
    atoms: dict[ix.Atom, Dim] = {}

    def on_atom(atom: ix.Atom) -> Dim | None:
        if atom.kind != "opaque":
            return None
        return as_index(fold(atom.payload, visit, memo), atom.low, atom.high)

    def visit(node: Expr, args: tuple[Expr, ...]) -> Expr:
        if args:
            return rebuild(node, args)
        replacement = leaf(node)
        if replacement is not None:
            return replacement
        return _moved(node, lambda position: ix.transform(position, on_atom, atoms))

    return fold(value, visit, memo)


def registers_first(value: Expr) -> Expr:
    """Put the operand that depends on a register first in sums and products where only the second one does.

    Results are the same to the bit.  Epilogues whose nodes have their operands in another order become equal.
    """

    def visit(node: Expr, args: tuple[tuple[Expr, bool], ...]) -> tuple[Expr, bool]:
        values, depends = [part for part, _ in args], [held for _, held in args]
        if node.op in ("add", "mul") and depends == [False, True]:
            return binary(node.op, values[1], values[0]), True
        return rebuild(node, tuple(values)) if args else node, node.op == "register" or any(depends)

    result: tuple[Expr, bool] = fold(value, visit)
    return result[0]


def _moved(leaf: Expr, move: Callable[[Dim], Dim]) -> Expr:
    """Return a leaf with the positions that it reads, or the coordinate that it is, changed by ``move``."""
    if leaf.op == "load":
        coordinates = tuple(move(axis) for axis in leaf.payload.coordinates)
        return load(leaf.payload.operand, leaf.payload.dtype, coordinates, leaf.dtype)
    return coordinate(move(leaf.payload)) if leaf.op == "coordinate" else leaf


class Substitution:
    """Replace coordinate variables by name, in positions, coordinates and opaque run-time values alike.

    What became of parts is kept, for further expressions that share them.
    """

    def __init__(self, mapping: Mapping[str, Dim]) -> None:
        self._mapping = mapping
        self._values: dict[Expr, Expr] = {}
        self._atoms: dict[ix.Atom, Dim] = {}

    def __call__(self, value: Expr) -> Expr:
        """Return ``value`` with the variables replaced."""
        return fold(value, self._visit, self._values)

    def _visit(self, node: Expr, args: tuple[Expr, ...]) -> Expr:
        return rebuild(node, args) if args else _moved(node, self._move)

    def _move(self, position: Dim) -> Dim:
        return ix.transform(position, self._on_atom, self._atoms)

    def _on_atom(self, atom: ix.Atom) -> Dim | None:
        if atom.kind == "var":
            return self._mapping.get(atom.payload)
        return as_index(self(atom.payload), atom.low, atom.high) if atom.kind == "opaque" else None


def substitute_variables(value: Expr, mapping: Mapping[str, Dim]) -> Expr:
    """Replace coordinate variables by name, in positions, coordinates and opaque run-time values alike."""
    return Substitution(mapping)(value)
