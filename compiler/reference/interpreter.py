"""A numpy interpreter of IR graphs, node by node: the meaning of the IR without a device.

Elementwise and ``gather`` operators are evaluated through their own expressions in the compute types of the device, the
kernel families by plain numpy.  Tests compare specialised and rewritten graphs with other runtimes by it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...runtime.plan.dtypes import compute_dtype, from_border, to_border
from ...runtime.plan.errors import InternalError
from ..ir.graph import Graph, Node, Value
from ..ops.internal.reduction import arg_reduce_array, reduce_array
from ..ops.internal.softmax_product import softmax_product_array
from ..ops.internal.sorting import merge_runs_array, permute_array
from ..ops.internal.winograd import input_array, output_array
from ..ops.onnx.convolution import ConvolutionAttributes, ConvolutionTransposeAttributes
from ..ops.onnx.cumulative import cumulate_array
from ..ops.onnx.matmul import matmul_array
from ..ops.onnx.pooling import PoolAttributes
from ..ops.onnx.recurrent import recurrent_array
from ..ops.onnx.scatter import scatter_array
from ..ops.onnx.suppression import choose_boxes_array
from ..ops.onnx.topk import TopIndicesAttributes, top_indices_array
from ..ops.registry import OpDef, registry
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import declared_dimension, dimension
from ..symbolic.evaluate import evaluate_expr
from ..symbolic.expr import Expr, Load
from ..symbolic.polynomial import Dim

Sizes = Mapping[str, int]  #: variables of declared dynamic dimensions -> their values in this run

#: what a load outside its operand gives: a guard must keep it from every result
_POISON = {"f": float("nan"), "i": -0x5A5A, "u": 0xA5, "b": True}


def run_graph(
    graph: Graph,
    feeds: Mapping[str, np.ndarray],
    sizes: Sizes | None = None,
    *,
    on_value: Callable[[Value, np.ndarray], None] | None = None,
) -> list[np.ndarray]:
    """The outputs of ``graph`` for inputs by name; ``on_value`` is told every result.

    Inputs and outputs have the dtypes of the border, results in between those of the compiler.

    ``sizes`` gives declared dynamic dimensions; those that are a size of an input on their own need not be given.
    """
    bound = dict(sizes or {})
    arrays: dict[int, np.ndarray] = {}
    for value in graph.inputs:
        array = from_border(np.asarray(feeds[value.name]), value.dtype)
        _bind_sizes(value, array, bound)
        arrays[value.id] = array
    for value in graph.constants:
        assert value.constant is not None
        arrays[value.id] = value.constant.read()
    for node in graph.nodes:
        operands = [None if value is None else arrays[value.id] for value in node.inputs]
        for value, array in zip(node.outputs, run_node(node, operands, bound)):
            expected = shape_of(value, bound)
            if array.shape != expected:
                raise InternalError(f"{node!r} gives shape {array.shape}, {expected} was inferred", origin=node.origin)
            arrays[value.id] = array
            if on_value is not None:
                on_value(value, array)
    return [to_border(arrays[value.id], value.dtype) for value in graph.outputs]


def _bind_sizes(value: Value, array: np.ndarray, bound: dict[str, int]) -> None:
    for dim, size in zip(value.shape, array.shape):
        if isinstance(dim, ix.Index):
            names = ix.variables(dim)
            declared = declared_dimension(next(iter(names))) if len(names) == 1 else None
            if declared is not None and dim == dimension(declared.name, *dim.bounds, declared.step):
                bound.setdefault(next(iter(names)), size // declared.step)
    if shape_of(value, bound) != array.shape:
        raise InternalError(f"input {value.name} has shape {array.shape}, the graph expects {value!r}")


def shape_of(value: Value, sizes: Sizes) -> tuple[int, ...]:
    """A value's shape in this run."""
    return tuple(int(ix.evaluate(dim, sizes)) for dim in value.shape)


def run_node(node: Node, operands: Sequence[np.ndarray | None], sizes: Sizes) -> list[np.ndarray]:
    """The outputs of one node; raises :class:`InternalError` for operators that the ``expand`` pass replaces."""
    definition = registry.of(node)
    if definition.family is not None:
        compute = _FAMILIES.get(definition.family)
        if compute is None:
            raise InternalError(f"the interpreter does not know the family '{definition.family}'", origin=node.origin)
        with np.errstate(all="ignore"):
            return [np.asarray(compute(node, [operand for operand in operands if operand is not None], sizes))]
    if definition.is_map:
        return [_run_map(definition, node, operands, sizes)]
    raise InternalError(f"{node.op} must be expanded first", origin=node.origin)


# -- elementwise and gather operators --------------------------------------------------------------------------------


def _run_map(definition: OpDef, node: Node, operands: Sequence[np.ndarray | None], sizes: Sizes) -> np.ndarray:
    output = node.outputs[0]
    shape = shape_of(output, sizes)
    variables: dict[str, np.ndarray] = {}
    coordinates: list[Dim] = []
    for axis, size in enumerate(output.shape):
        sides = [1] * len(shape)
        sides[axis] = shape[axis]
        variables[f"axis{axis}"] = np.arange(shape[axis], dtype=np.int64).reshape(sides)
        coordinates.append(ix.variable(f"axis{axis}", 0, max(ix.bounds(size)[1] - 1, 0)))
    if 0 in shape:
        return np.zeros(shape, compute_dtype(output.dtype))

    def read(position: int, coordinates: Sequence[Dim]) -> Expr:
        value = node.operand(position)
        if len(coordinates) != value.rank:
            raise InternalError(f"{node.op} reads {value!r} at {len(coordinates)} coordinates", origin=node.origin)
        return ex.load(position, value.dtype.name, tuple(coordinates), value.dtype.compute)

    if definition.element is not None:
        args = [
            read(position, broadcast_coordinates(value, coordinates))
            for position, value in enumerate(node.inputs)
            if value is not None
        ]
        result = definition.element(node, args)
    else:
        assert definition.gather is not None
        result = definition.gather(node, coordinates, read)
    if result.dtype != output.dtype.compute:
        raise InternalError(f"{node.op} computes {result.dtype}, not {output.dtype.compute}", origin=node.origin)
    array = evaluate_expr(result, lambda load, where: _load(load, where, operands), {**sizes, **variables})
    stored = np.broadcast_to(np.asarray(array), shape)
    _check_narrow(node, stored, output)
    with np.errstate(all="ignore"):
        return stored.astype(compute_dtype(output.dtype))


def broadcast_coordinates(value: Value, coordinates: Sequence[Dim]) -> list[Dim]:
    """Where an operand is read for an output element, under numpy's broadcasting."""
    own = coordinates[len(coordinates) - value.rank :]
    return [0 if not isinstance(size, ix.Index) and size == 1 else where for size, where in zip(value.shape, own)]


def _load(load: Load, where: tuple[np.ndarray, ...], operands: Sequence[np.ndarray | None]) -> np.ndarray:
    array = operands[load.operand]  # type: ignore[call-overload]  # operands are named by position
    assert array is not None
    inside = np.asarray(True)
    safe = []
    for axis, size in zip(where, array.shape):
        inside = inside & (axis >= 0) & (axis < size)
        safe.append(np.clip(axis, 0, max(size - 1, 0)))
    poison = np.asarray(_POISON.get(array.dtype.kind, 0)).astype(array.dtype)
    if not array.size:
        return np.broadcast_to(poison, inside.shape)
    return np.where(inside, array[tuple(safe)], poison)


def _check_narrow(node: Node, array: np.ndarray, output: Value) -> None:
    """8- and 16-bit integers must have been wrapped by the operator: stores keep the low bits only."""
    dtype = output.dtype
    if dtype.is_integer and dtype.bits < 32 and array.size:
        low, high = dtype.integer_range
        if array.min() < low or array.max() > high:
            raise InternalError(f"{node.op} does not wrap its result to {dtype}", origin=node.origin)


# -- kernel families -------------------------------------------------------------------------------------------------


def _reduce(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    return reduce_array(operands[0], node.attributes, node.operand(0).dtype)


def _arg_reduce(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    return arg_reduce_array(operands[0], node.attributes)


def _gemm(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    return matmul_array(operands[0], operands[1])


def _taps(
    kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], windows: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """For each kernel element: its offsets, and the slices of padded input positions that it meets, one a window."""
    result = []
    for offsets in itertools.product(*map(range, kernel)):
        slices = tuple(
            slice(offset * dilation, offset * dilation + (count - 1) * stride + 1, stride)
            for offset, dilation, count, stride in zip(offsets, dilations, windows, strides)
        )
        result.append((offsets, slices))
    return result


def _padded(array: np.ndarray, pads: Sequence[int], least: Sequence[int], fill: float) -> np.ndarray:
    """``array`` with padding of its spatial axes, made at least ``least`` long (negative padding crops)."""
    count = len(pads) // 2
    for axis in range(count):
        begin, end = pads[axis], pads[count + axis]
        end = max(end, least[axis] - array.shape[2 + axis] - begin)
        crop = [slice(None)] * array.ndim
        crop[2 + axis] = slice(max(-begin, 0), array.shape[2 + axis] - max(-end, 0))
        widths = [(0, 0)] * array.ndim
        widths[2 + axis] = (max(begin, 0), max(end, 0))
        array = np.pad(array[tuple(crop)], widths, constant_values=np.asarray(fill).astype(array.dtype))
    return array


def _kernel_first(weight: np.ndarray, group: int) -> np.ndarray:
    """[G * A, B, kernel...] as [kernel..., G, A, B]."""
    grouped = weight.reshape(group, weight.shape[0] // group, *weight.shape[1:])
    return np.moveaxis(grouped, (0, 1, 2), (-3, -2, -1))


def _convolution(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    attributes: ConvolutionAttributes = node.attributes
    compute = np.float32 if node.operand(0).dtype.is_float else np.int32
    value, weight = (operand.astype(compute) for operand in operands)
    shape = shape_of(node.outputs[0], sizes)
    padded = _padded(value, attributes.pads, (0,) * len(attributes.kernel), 0)
    group = attributes.group
    result = np.zeros((shape[0], group, shape[1] // group, *shape[2:]), compute)
    weights = _kernel_first(weight, group)
    for offsets, slices in _taps(attributes.kernel, attributes.strides, attributes.dilations, shape[2:]):
        seen = padded[(slice(None), slice(None), *slices)]
        seen = seen.reshape(seen.shape[0], group, seen.shape[1] // group, *seen.shape[2:])
        result += np.einsum("ngc...,goc->ngo...", seen, weights[offsets])
    return result.reshape(shape).astype(operands[0].dtype)


def _convolution_transpose(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    attributes: ConvolutionTransposeAttributes = node.attributes
    value, weight = (operand.astype(np.float32) for operand in operands)
    shape = shape_of(node.outputs[0], sizes)
    group, count = attributes.group, len(attributes.kernel)
    # every element that some input reaches, then what the padding leaves of it
    reach = [
        max(
            (value.shape[2 + axis] - 1) * attributes.strides[axis]
            + (attributes.kernel[axis] - 1) * attributes.dilations[axis]
            + 1,
            attributes.pads[axis] + shape[2 + axis],
        )
        for axis in range(count)
    ]
    full = np.zeros((shape[0], group, shape[1] // group, *reach), np.float32)
    grouped = value.reshape(value.shape[0], group, value.shape[1] // group, *value.shape[2:])
    weights = _kernel_first(weight, group)
    for offsets, slices in _taps(attributes.kernel, attributes.strides, attributes.dilations, value.shape[2:]):
        part = np.einsum("ngc...,gco->ngo...", grouped, weights[offsets])
        full[(slice(None), slice(None), slice(None), *slices)] += part
    kept = tuple(slice(attributes.pads[axis], attributes.pads[axis] + shape[2 + axis]) for axis in range(count))
    return full[(slice(None), slice(None), slice(None), *kept)].reshape(shape).astype(operands[0].dtype)


def _pool(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    attributes: PoolAttributes = node.attributes
    value, dtype = operands[0], node.operand(0).dtype
    shape = shape_of(node.outputs[0], sizes)
    compute = value.astype(np.float32) if dtype.is_float else value
    lowest = -np.inf if dtype.is_float else np.iinfo(dtype.numpy).min
    count = len(attributes.kernel)
    least = [
        (shape[2 + axis] - 1) * attributes.strides[axis]
        + (attributes.kernel[axis] - 1) * attributes.dilations[axis]
        + 1
        for axis in range(count)
    ]
    taps = _taps(attributes.kernel, attributes.strides, attributes.dilations, shape[2:])

    def windows(array: np.ndarray, fill: float) -> np.ndarray:
        padded = _padded(array, attributes.pads, least, fill)
        return np.stack([padded[(slice(None), slice(None), *slices)] for _, slices in taps])

    if attributes.kind == "max":
        return windows(compute, lowest).max(axis=0).astype(value.dtype)
    if attributes.kind == "lp":
        powers = windows(np.abs(compute) ** np.float32(attributes.p), 0.0).sum(axis=0, dtype=np.float32)
        return (powers ** np.float32(1.0 / attributes.p)).astype(value.dtype)
    present = np.ones((1, 1, *value.shape[2:]), np.float32)
    if attributes.count_include_pad:
        present = _padded(present, attributes.pads, (0,) * count, 1.0)
        grown = [(0, 0), (0, 0), *((0, max(least[axis] - present.shape[2 + axis], 0)) for axis in range(count))]
        present = np.pad(present, grown)
        numbers = np.stack([present[(slice(None), slice(None), *slices)] for _, slices in taps]).sum(axis=0)
    else:
        numbers = windows(present, 0.0).sum(axis=0)
    return (windows(compute, 0.0).sum(axis=0, dtype=np.float32) / numbers).astype(value.dtype)


def _scan(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    return cumulate_array(operands[0], node.attributes)


def _rank(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    attributes: TopIndicesAttributes = node.attributes
    k = int(ix.evaluate(attributes.k, sizes))
    return top_indices_array(operands[0], attributes.axis, k, attributes.largest, attributes.run)


def _merge(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    return merge_runs_array(operands[0], operands[1], node.attributes)


def _permute(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    return permute_array(operands[0], operands[1])


def _suppress(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    present = iter(operands)
    return choose_boxes_array(node, [None if value is None else next(present) for value in node.inputs])


def _scatter(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    return scatter_array(operands[0], operands[1], operands[2], node.attributes)


def _winograd_input(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    return input_array(operands[0], node.attributes)


def _winograd_output(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    return output_array(operands[0], node.attributes)


def _recurrent(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    present = iter(operands)
    return recurrent_array(node.attributes, [None if value is None else next(present) for value in node.inputs])


def _attention(node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
    return softmax_product_array(operands[0], operands[1], node.attributes)


Family = Callable[[Node, Sequence[np.ndarray], Sizes], np.ndarray]

_FAMILIES: dict[str, Family] = {
    "reduce": _reduce,
    "arg_reduce": _arg_reduce,
    "gemm": _gemm,
    "conv": _convolution,
    "conv_transpose": _convolution_transpose,
    "window": _pool,
    "scan": _scan,
    "rank": _rank,
    "merge": _merge,
    "permute": _permute,
    "suppress": _suppress,
    "scatter": _scatter,
    "recurrent": _recurrent,
    "attention": _attention,
    "winograd_input": _winograd_input,
    "winograd_output": _winograd_output,
}
