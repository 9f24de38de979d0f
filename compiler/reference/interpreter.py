"""A numpy interpreter of IR graphs, node by node: the meaning of the IR without a device.

Every node is computed by the numpy reference of its kernel family.  Tests compare specialised and rewritten graphs
with other runtimes by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...runtime.plan.dtypes import compute_dtype, from_border, to_border
from ...runtime.plan.errors import InternalError
from ..ir.coordinates import Sizes, shape_of
from ..ir.graph import Graph, Node, Shape, Value
from ..kernels.family import family_of
from ..kernels.map import MAP
from ..ops.registry import registry
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import declared_dimension, dimension

#: Names of the types that are computed in float32
_HALVES = ("float16", "bfloat16")


def run_graph(
    graph: Graph,
    feeds: Mapping[str, np.ndarray],
    sizes: Sizes | None = None,
    *,
    on_value: Callable[[Value, np.ndarray], None] | None = None,
) -> list[np.ndarray]:
    """Return the outputs of ``graph`` for inputs by name; call ``on_value`` with every result.

    Inputs and outputs have the dtypes of the model's interface, intermediate results those of the compiler.

    ``sizes`` binds declared dynamic dimensions; those that are the size of an input on their own may be omitted.
    """
    bound = dict(sizes or {})
    arrays: dict[int, np.ndarray] = {}
    for value in graph.inputs:
        array = from_border(np.asarray(feeds[value.name]), value.dtype)
        if value.storage is not None:  # of an input that the model declares float16 and passes compute in float32
            array = array.astype(compute_dtype(value.dtype), copy=False)
        bind_sizes(value.shape, array.shape, bound)
        if shape_of(value, bound) != array.shape:
            raise InternalError(f"input {value.name} has shape {array.shape}, the graph expects {value!r}")
        arrays[value.id] = array
    for value in graph.constants:
        assert value.constant is not None
        arrays[value.id] = value.constant.read()
    for node in graph.nodes:
        operands = [None if value is None else arrays[value.id] for value in node.inputs]
        for value, array in zip(node.outputs, run_node(node, operands, bound)):
            expected = shape_of(value, bound)
            if value.dtype.name in _HALVES:
                with np.errstate(over="ignore"):
                    array = array.astype(compute_dtype(value.dtype), copy=False)
            if array.shape != expected:
                raise InternalError(f"{node!r} gives shape {array.shape}, {expected} was inferred", origin=node.origin)
            arrays[value.id] = array
            if on_value is not None:
                on_value(value, array)
    return [to_border(arrays[value.id], value.dtype) for value in graph.outputs]


def bind_sizes(shape: Shape, sizes: Sequence[int], bound: dict[str, int]) -> None:
    """Add the declared dynamic dimensions that are the size of an axis on their own to ``bound``."""
    for dim, size in zip(shape, sizes):
        if isinstance(dim, ix.Index):
            names = ix.variables(dim)
            declared = declared_dimension(next(iter(names))) if len(names) == 1 else None
            below = ix.atoms(dim)[0].below
            if declared is not None and dim == dimension(declared.name, *dim.bounds, declared.step, below):
                bound.setdefault(next(iter(names)), size // declared.step)


def run_node(node: Node, operands: Sequence[np.ndarray | None], sizes: Sizes) -> list[np.ndarray]:
    """Return the outputs of one node, those of 16-bit floats in float32: kernels round only where they store.

    Raises :class:`InternalError` for operators that the ``expand`` pass replaces.
    """
    definition = registry.of(node)
    family = MAP if definition.is_map else family_of(node)
    if family is None:
        raise InternalError(f"{node.op} must be expanded first", origin=node.origin)
    present = [
        operand.astype(np.float32) if operand.dtype.name in _HALVES and not definition.by_type else operand
        for operand in operands
        if operand is not None
    ]
    with np.errstate(all="ignore"):
        return [np.asarray(family.reference(node, present, sizes))]
