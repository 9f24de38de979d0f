"""Operands of a kernel by name: hooks with other names, and kernels that write over one of their operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ..codegen.spec import Hook, KernelSpec, Store
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic import substitution
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim


def renamed(hook: Hook, names: Mapping[str, str]) -> Hook:
    """Return the hook with operands renamed as ``names`` says; those that it does not have keep their names."""
    if all(old == new for old, new in names.items()):
        return hook

    def leaf(node: Expr) -> Expr | None:
        if node.op != "load" or names.get(str(node.payload.operand), node.payload.operand) == node.payload.operand:
            return None
        payload = node.payload
        coordinates = tuple(_renamed_index(axis, rename) for axis in payload.coordinates)
        return ex.load(names[str(payload.operand)], payload.dtype, coordinates, node.dtype)

    def rename(expression: Expr) -> Expr:
        return substitution.replace(expression, leaf)

    stores = tuple(
        Store(
            store.operand,
            store.dtype,
            _renamed_index(store.position, rename),
            rename(store.value),
            None if store.condition is None else rename(store.condition),
        )
        for store in hook.stores
    )
    result = None if hook.result is None else rename(hook.result)
    return replace(hook, result=result, stores=stores)


def _renamed_index(value: Dim, rename: Callable[[Expr], Expr]) -> Dim:
    def on_atom(atom: ix.Atom) -> Dim | None:
        if atom.kind != "opaque":
            return None
        return ex.as_index(rename(atom.payload), atom.low, atom.high)

    return ix.transform(value, on_atom)


def stored_expressions(store: Store) -> Iterator[Expr]:
    """Yield what a store computes: its value, then its condition."""
    yield store.value
    if store.condition is not None:
        yield store.condition


def reads_own_element_only(spec: KernelSpec, operand: str) -> bool:
    """Return whether each thread reads of ``operand`` only the elements that it writes, as part of writing them."""
    for hook in spec.hooks:
        if hook.result is not None and any(load.payload.operand == operand for load in ex.loads(hook.result)):
            return False
        for store in hook.stores:
            for expression in stored_expressions(store):
                for load in ex.loads(expression):
                    same = load.payload.dtype == store.dtype and load.payload.position == store.position
                    if load.payload.operand == operand and not same:
                        return False
    return True


def in_place_spec(spec: KernelSpec, operand: str, result: str) -> KernelSpec:
    """Return the kernel that reads ``operand`` at the binding of ``result``, which takes over its memory."""
    others = [each for each in spec.operands if each.name != operand]
    read = [each.name for each in others if each.access == "read"]
    names = {name: f"x{number}" for number, name in enumerate(read)} | {operand: result}
    operands = tuple(replace(each, name=names.get(each.name, each.name)) for each in others)
    return replace(spec, operands=operands, hooks=tuple(renamed(hook, names) for hook in spec.hooks))
