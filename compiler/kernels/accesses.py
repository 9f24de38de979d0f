"""Keep every access of a kernel inside its operand, also without the bounds checks of the shader's compiler.

A hook's parameters are in the range of their variables: the template sees to that.  From there on an access is inside
if

* its position has bounds that lie inside the operand's memory, padding to 16 bytes included; or
* it was made for logical coordinates, each of which is inside its axis; a condition that guards the access counts.

What neither shows gets a bound of its own: a load the nearest position inside, a store a condition.  Such are the last
thread of a map kernel, which computes up to three unused elements, and windows that reach over the border.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...runtime.plan.dtypes import padded_bytes
from ...runtime.plan.record import record
from ..codegen.spec import Hook, Store
from ..ir.graph import Value
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic import substitution
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANES, depends_on_lane, is_aligned, lane_variable, split_lane
from ..symbolic.polynomial import Dim
from .memory_words import word_in_memory

Coordinates = tuple[Dim, ...]


@record
class Inequality:
    """A condition that holds where an access is executed: ``left < right``, or ``left >= right``."""

    is_less: bool
    left: Dim
    right: Dim


Inequalities = tuple[Inequality, ...]


def inequalities_of(condition: Expr | None) -> Inequalities:
    """Return the inequalities that the comparisons of coordinates in a conjunction imply."""
    inequalities: list[Inequality] = []
    stack = [] if condition is None else [condition]
    while stack:
        node = stack.pop()
        if node.op == "and":
            stack.extend(node.args)
        elif node.op in ("lt", "ge", "gt", "le") and node.args[0].dtype == "i32":
            left, right = (_number(argument) for argument in node.args)
            if left is None or right is None:
                continue
            if node.op in ("gt", "le"):
                left, right = right, left
            inequalities.append(Inequality(node.op in ("lt", "gt"), left, right))
    return tuple(inequalities)


def _number(node: Expr) -> Dim | None:
    if node.op == "coordinate":
        position: Dim = node.payload
        return position
    return int(node.payload) if node.op == "const" else None


def is_inside(coordinate: Dim, size: Dim, inequalities: Inequalities) -> bool:
    """Return whether ``inequalities`` imply ``0 <= coordinate < size``."""
    low = ix.bounds(coordinate)[0] >= 0 or any(
        not inequality.is_less and ix.bounds(_shifted(coordinate, inequality))[0] >= 0 for inequality in inequalities
    )
    return low and (
        ix.always_less(coordinate, size)
        or any(
            inequality.is_less and ix.always_less(_shifted(coordinate, inequality), ix.add(size, 1))
            for inequality in inequalities
        )
    )


def _shifted(coordinate: Dim, inequality: Inequality) -> Dim:
    """Return the coordinate with the left side of a inequality replaced by its right side."""
    return ix.add(ix.add(coordinate, ix.multiply(inequality.left, -1)), inequality.right)


class Accesses:
    """Collects where the loads and stores of one kernel are made for, and bounds those that are not known inside."""

    def __init__(self) -> None:
        self._loads: dict[Expr, set[tuple[Value, Coordinates]]] = {}
        self._stores: dict[Dim, set[tuple[Value, Coordinates]]] = {}
        #: what became of expressions where inequalities hold: positions that are read share their parts
        self._done: dict[Inequalities, dict[Expr, Expr]] = {}

    def loaded(self, load: Expr, value: Value, coordinates: Coordinates) -> None:
        self._loads.setdefault(load, set()).add((value, coordinates))

    def stored(self, position: Dim, value: Value, coordinates: Coordinates) -> None:
        self._stores.setdefault(position, set()).add((value, coordinates))

    def bounded(self, hooks: Iterable[Hook], values: Mapping[str, Value]) -> list[Hook]:
        """Return the hooks with every access in bounds; ``values`` are the tensors of the named operands."""
        self._done.clear()
        return [self._hook(hook, values) for hook in hooks]

    def _hook(self, hook: Hook, values: Mapping[str, Value]) -> Hook:
        result = None if hook.result is None else self._expression(hook.result, (), values)
        stores = tuple(self._store(store, values) for store in hook.stores)
        if result is hook.result and all(new is old for new, old in zip(stores, hook.stores)):
            return hook
        return replace(hook, result=result, stores=stores)

    def _store(self, store: Store, values: Mapping[str, Value]) -> Store:
        condition = None if store.condition is None else self._expression(store.condition, (), values)
        inequalities = inequalities_of(condition)
        value = self._expression(store.value, inequalities, values)
        position = self._position(store.position, inequalities, values)
        accessed = self._stores.get(store.position, set())
        if not self._is_inside(position, values[store.operand], accessed, inequalities):
            inside = _guard(position, values[store.operand])
            condition = inside if condition is None else ex.binary("and", condition, inside)
        if (value, position, condition) == (store.value, store.position, store.condition):
            return store
        return replace(store, value=value, position=position, condition=condition)

    def _expression(self, value: Expr, inequalities: Inequalities, values: Mapping[str, Value]) -> Expr:
        """Return ``value`` with its loads in bounds where ``inequalities`` hold; guards add some for their values."""
        done = self._done.setdefault(inequalities, {})
        stack = [value]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            needed = (node.args[0], node.args[2]) if node.op == "guard" else node.args
            waiting = [argument for argument in needed if argument not in done]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if node.op == "guard":
                condition = done[node.args[0]]
                guarded = self._expression(node.args[1], (*inequalities, *inequalities_of(condition)), values)
                done[node] = substitution.rebuild(node, (condition, guarded, done[node.args[2]]))
            elif node.op == "load":
                done[node] = self._load(node, inequalities, values)
            elif node.op == "coordinate":
                done[node] = ex.coordinate(self._position(node.payload, inequalities, values))
            else:
                args = tuple(done[argument] for argument in node.args)
                joined = word_in_memory(args) if node.op == "word" else None
                done[node] = joined or substitution.rebuild(node, args)
        return done[value]

    def _load(self, node: Expr, inequalities: Inequalities, values: Mapping[str, Value]) -> Expr:
        payload = node.payload
        value = values[str(payload.operand)]
        position = self._position(payload.position, inequalities, values)
        if not self._is_inside(position, value, self._loads.get(node, set()), inequalities):
            position = _nearest(position, _memory(value))
        if position == payload.position:
            return node
        return ex.load(payload.operand, payload.dtype, position, node.dtype)

    def _position(self, position: Dim, inequalities: Inequalities, values: Mapping[str, Value]) -> Dim:
        """Return the position with the loads of its run-time integers in bounds."""
        if not ix.opaque_payloads(position):
            return position

        def on_atom(atom: ix.Atom) -> Dim | None:
            if atom.kind != "opaque":
                return None
            inner = self._expression(atom.payload, inequalities, values)
            return None if inner is atom.payload else ex.as_index(inner, atom.low, atom.high)

        return ix.transform(position, on_atom)

    @staticmethod
    def _is_inside(
        position: Dim, value: Value, accessed: set[tuple[Value, Coordinates]], inequalities: Inequalities
    ) -> bool:
        memory = _memory(value)
        low, high = ix.bounds(position)
        if low >= 0 and high < ix.bounds(memory)[0]:
            return True
        vector = _vector(position, value)
        if vector is not None and is_inside(*vector, inequalities):
            return True
        if is_inside(position, memory, inequalities):
            return True
        return any(
            all(
                is_inside(coordinate, size, inequalities)
                for coordinate, size in zip(coordinates, other.shape, strict=True)
            )
            for other, coordinates in accessed
        )


def _vector(position: Dim, value: Value) -> tuple[Dim, Dim] | None:
    """Return the index of an aligned vector of four neighbours and the vectors in the padded memory, else None."""
    if value.dtype.itemsize > LANES or not is_aligned(position):
        return None
    base, _ = split_lane(position)
    assert base is not None
    return ix.floordiv(base, LANES), ix.ceildiv(value.layout.stored_elements(value.shape), LANES)


def _guard(position: Dim, value: Value) -> Expr:
    """Return the bounds check of a store; of four aligned neighbours together, so that one thread owns their words."""
    vector = _vector(position, value)
    return ex.in_range(position, 0, _memory(value)) if vector is None else ex.in_range(vector[0], 0, vector[1])


def _memory(value: Value) -> Dim:
    """Return the number of elements that the memory of a tensor has room for."""
    elements = value.layout.stored_elements(value.shape)
    return elements if isinstance(elements, ix.Index) else padded_bytes(elements, value.dtype) * 8 // value.dtype.bits


def _nearest(position: Dim, memory: Dim) -> Dim:
    """Clamp a position to the memory; four aligned neighbours stay aligned."""
    if not isinstance(memory, ix.Index) and memory % LANES == 0 and depends_on_lane(position) and is_aligned(position):
        base, _ = split_lane(position)
        assert base is not None
        vector = ix.maximum(ix.minimum(ix.floordiv(base, LANES), memory // LANES - 1), 0)
        return ix.add(ix.multiply(vector, LANES), lane_variable())
    return ix.maximum(ix.minimum(position, ix.add(memory, -1)), 0)
