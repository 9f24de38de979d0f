"""Making nodes: look the operator up, type its attributes, infer, fold, append.

Every node of a graph is made here, by the specialiser, by decompositions and by rewrites, so these hold everywhere:

* operand types are those that the operator's lowering supports;
* values of static inputs are known;
* Identity is its operand: no node is made;
* a node whose results are all known and free of dynamic dimensions is not made at all: its results are constants;
* tensors without elements are known, so that none reaches a kernel;
* a result that is known but mentions dynamic dimensions is the output of an internal ``Dimensions`` node.  Consumers
  that need the value at compile time take it from ``Value.static_value``, others read the node like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.plan.dtypes import BY_NAME, DType, compute_dtype
from ...runtime.plan.errors import (
    InternalError,
    LimitError,
    ModelError,
    NotKnownError,
    Origin,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
)
from ..ir.constants import InlineSource, PackedSource, TensorSource
from ..ir.graph import Graph, Node, Shape, Value
from ..ir.shapes import shape_fault
from ..ops.internal.symbolic import MAX_DIMENSIONS, DimensionsAttributes
from ..ops.math.index_rule import check_static_indices
from ..ops.registry import OpDef, registry
from ..options import DEFAULT_LIMITS, Limits
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import declared_dimension

_NARROWER = "declare a narrower range of that dimension, or none"

#: Names of the element types that a device holds
ON_DEVICE = frozenset(name for name, dtype in BY_NAME.items() if dtype.on_device)


class GraphBuilder:
    """Implements :class:`~.registry.Builder` on a graph.  New nodes get ``origins``."""

    def __init__(self, graph: Graph, origins: Sequence[Origin] = (), limits: Limits = DEFAULT_LIMITS) -> None:
        self.graph = graph
        self.origins = origins
        self.limits = limits

    @property
    def origin(self) -> Origin | None:
        return self.origins[0] if self.origins else None

    # -- the protocol of decompositions ---------------------------------------------------------------------------

    def op(self, name: str, *inputs: Value | None, domain: str = "", **attributes: Any) -> Value:
        """Append a node and give its first output."""
        return self.ops(name, *inputs, domain=domain, **attributes)[0]

    def ops(self, name: str, *inputs: Value | None, domain: str = "", **attributes: Any) -> list[Value]:
        """Append a node and give all its outputs."""
        definition = registry.get(name, domain)
        try:
            typed = definition.attributes(**attributes)
        except TypeError as error:
            raise InternalError(f"attributes of {name}: {error}", origin=self.origin) from error
        return self.emit(definition, inputs, typed)

    def constant(self, array: np.ndarray, name: str = "") -> Value:
        """Add a small inline constant."""
        return self.add_constant(name, InlineSource(np.asarray(array)))

    def scalar(self, value: float | int | bool, like: Value) -> Value:
        """Add a rank-0 constant of the element type of ``like``."""
        source = InlineSource(np.asarray(value, compute_dtype(like.dtype)), like.dtype)
        return self.add_constant("", source)

    # -- what the protocol is made of -----------------------------------------------------------------------------

    def add_constant(self, name: str, source: TensorSource) -> Value:
        """Add a constant; its elements are known to the compiler when it is small."""
        shape = source.shape
        self._check_size(name, shape)
        if isinstance(source, PackedSource):
            if math.prod(shape) > self.limits.fold_elements:
                packed = self.graph.add_constant(name, source.data.dtype, source.data.shape, source.data)
                return self.op("Unpack", packed, domain="loom", to=source.dtype.onnx, shape=shape)
            source = InlineSource(source.read(), source.dtype)
        value = self.graph.add_constant(name, source.dtype, shape, source)
        if math.prod(shape) <= self.limits.fold_elements:
            value.static_value = source.read()
        return value

    def emit(
        self,
        definition: OpDef,
        inputs: Sequence[Value | None],
        attributes: Any,
        names: Sequence[str] = (),
        blocks: tuple[Graph, ...] = (),
    ) -> list[Value]:
        """Infer and fold one operator application, or append it.  ``names`` are those of the outputs, as far as known.

        Raises :class:`ShapeError` when the operands do not fit, :class:`UnsupportedError` for their element types, and
        :class:`LimitError` when a result has more elements than the cap.
        """
        if definition.name == "Identity" and definition.domain == "" and inputs[0] is not None:
            return [inputs[0]]
        # A detached node: inference and folding look at it, use lists do not know it.
        node = Node(0, definition.name, definition.domain, list(inputs), attributes, self.origins, blocks)
        inferred = self._infer(definition, node)
        if len(names) > len(inferred):
            raise ModelError(f"{definition.name} has at most {len(inferred)} outputs", origin=self.origin)
        labels = [*names, *[""] * (len(inferred) - len(names))]
        for label, (_, shape) in zip(labels, inferred):
            self._check_size(label or definition.name, shape)
        folded = self._fold(definition, node, inferred)
        if folded is not None:
            return [
                self._folded_value(label, dtype, array) for label, (dtype, _), array in zip(labels, inferred, folded)
            ]
        self._check_operands(definition, node)
        for dtype, _ in inferred:
            if not dtype.on_device:
                raise UnsupportedError.of_result(definition.name, dtype.name, ON_DEVICE, origin=self.origin)
        outputs = [(label, dtype, tuple(shape)) for label, (dtype, shape) in zip(labels, inferred)]
        appended = self.graph.add_node(
            definition.name, inputs, attributes, outputs, domain=definition.domain, origins=self.origins, blocks=blocks
        )
        return appended.outputs

    def _infer(self, definition: OpDef, node: Node) -> list[tuple[DType, Shape]]:
        try:
            inferred = [(dtype, tuple(shape)) for dtype, shape in definition.infer(node)]
            for rule in definition.indices:
                if rule.is_error:
                    check_static_indices(node, rule, every_size=self.limits.every_size)
            return inferred
        except ix.Undecidable as error:
            raise ShapeError(
                f"the result's shape depends on whether {error}", origin=self.origin, hint=_NARROWER
            ) from error
        except ShaderloomError as error:
            error.origin = error.origin or self.origin
            symbols = {name for value in node.inputs if value is not None for name in _symbols(value)}
            if error.hint is None and symbols:
                listed = ", ".join(sorted(symbols))
                error.hint = f"it does not hold for every size of {listed}: {_NARROWER}"
            raise

    def _check_size(self, name: str, shape: Shape) -> None:
        for axis, size in enumerate(shape):
            low, high = ix.bounds(size)
            if low < 0:
                error = ShapeError(
                    f"axis {axis} of {name} has {ix.text(size)} elements, "
                    + ("a negative number" if high < 0 else f"down to {low}"),
                    origin=self.origin,
                )
                if isinstance(size, ix.Index):
                    error.hint = _NARROWER
                raise error
        fault = shape_fault(shape)
        if fault is not None:
            raise LimitError(fault, origin=self.origin, tensor=name or None)
        count = ix.bounds(ix.product(shape))[1]
        if count > self.limits.tensor_elements:
            dims = " x ".join(ix.text(size) for size in shape)
            raise LimitError(
                f"a tensor of {dims} has up to {count} elements; the limit is {self.limits.tensor_elements}",
                origin=self.origin,
                tensor=name or None,
            )

    def _check_operands(self, definition: OpDef, node: Node) -> None:
        for position, value in enumerate(node.inputs):
            if value is None:
                continue
            if position in definition.static_inputs:
                if value.static_value is None and not self._read_static(value):
                    raise NotKnownError(
                        f"input {position} of {definition.name} must be known at compile time, but it is computed from "
                        "the elements of the model's inputs",
                        origin=self.origin,
                        tensor=value.name or None,
                    )
                continue
            supported = definition.types[min(position, len(definition.types) - 1)] if definition.types else None
            if not value.dtype.on_device or (supported is not None and value.dtype.name not in supported):
                error = UnsupportedError.of_type(
                    definition.name, position, value.dtype.name, supported or ON_DEVICE, origin=self.origin
                )
                error.tensor = value.name or None
                raise error

    @staticmethod
    def _read_static(value: Value) -> bool:
        """Make the elements of a constant known that was too large to be read before."""
        if value.constant is None:
            return False
        value.static_value = value.constant.read()
        return True

    # -- folding ---------------------------------------------------------------------------------------------------

    def _fold(self, definition: OpDef, node: Node, inferred: Sequence[tuple[DType, Shape]]) -> list[np.ndarray] | None:
        """Evaluate the elements of every result; None when they are unknown at compile time (or too many)."""
        if inferred and all(is_empty(shape) for _, shape in inferred):
            return [empty_array(shape, dtype) for dtype, shape in inferred]
        if definition.fold_shapes is None and (
            definition.fold is None or any(value is not None and value.static_value is None for value in node.inputs)
        ):
            return None
        nothing = bool(node.inputs) and all(value is None or is_empty(value.shape) for value in node.inputs)
        for _, shape in inferred:
            count = ix.product(shape)
            if isinstance(count, ix.Index) or (count > self.limits.fold_elements and not nothing):
                return None
        # The rules of folding may ask for the number, types and shapes of results.
        node.outputs = [self.graph.new_value("", dtype, shape) for dtype, shape in inferred]
        if definition.fold_shapes is not None:
            results = definition.fold_shapes(node)
        else:
            assert definition.fold is not None
            operands = [value if value is None else value.static_value for value in node.inputs]
            symbolic = any(array is not None and _has_index(array) for array in operands)
            try:
                with np.errstate(all="ignore"):
                    results = definition.fold(node, *operands)
            except ix.Undecidable:
                return None
            except TypeError:
                # The host can say no more about a symbolic integer than sums, products and divisions of it.
                if symbolic:
                    return None
                raise
        if not isinstance(results, (list, tuple)):
            results = (results,)
        if len(results) != len(inferred):
            raise InternalError(f"folding {definition.name} gave {len(results)} results", origin=self.origin)
        arrays = []
        for result, (dtype, shape) in zip(results, inferred):
            array = _typed(result, dtype)
            if array is None:
                return None
            if dtype.name == "float16" and not definition.by_type and _has_overflown(array, node):
                return None  # it may be computed as float32 (:mod:`..precision.wide_tensors`)
            if array.shape != shape:
                raise InternalError(
                    f"folding {definition.name} gave shape {array.shape} where {shape} was inferred", origin=self.origin
                )
            arrays.append(array)
        return arrays

    def _folded_value(self, name: str, dtype: DType, array: np.ndarray) -> Value:
        if array.dtype != object:
            return self.add_constant(name, InlineSource(array, dtype))
        attributes = DimensionsAttributes(tuple(array.reshape(-1)), array.shape, dtype)
        outputs = [(name, dtype, array.shape)]
        value = self.graph.add_node("Dimensions", (), attributes, outputs, domain="loom", origins=self.origins).output
        value.static_value = array
        return value


def empty_array(shape: Shape, dtype: DType) -> np.ndarray:
    """Return the only value of a tensor that has no elements; see :func:`is_empty`."""
    return np.zeros([ix.number(size) for size in shape], compute_dtype(dtype))


def is_empty(shape: Shape) -> bool:
    """Return whether a tensor of this shape has no elements and only numeric sizes."""
    return 0 in shape and not any(isinstance(size, ix.Index) for size in shape)


def _symbols(value: Value) -> set[str]:
    """Return the names of the dynamic dimensions in the shape, or in the known elements, of ``value``."""
    variables = set().union(*map(ix.variables, value.shape))
    if value.static_value is not None and value.static_value.dtype == object:
        variables |= set().union(*map(ix.variables, value.static_value.flat))
    return {declared.name for declared in map(declared_dimension, variables) if declared is not None}


def _has_index(array: np.ndarray) -> bool:
    return array.dtype == object and any(isinstance(element, ix.Index) for element in array.flat)


def _has_overflown(array: np.ndarray, node: Node) -> bool:
    """Return whether a known result is not finite although all known operands are."""
    operands = [value.static_value for value in node.inputs if value is not None and value.static_value is not None]
    return not np.isfinite(array).all() and all(
        operand.dtype.kind not in "f" or bool(np.isfinite(operand).all()) for operand in operands
    )


def _typed(result: Any, dtype: DType) -> np.ndarray | None:
    """Convert ``result`` to the numpy dtype of ``dtype`` (an object array where it is symbolic); None if impossible."""
    array = np.asarray(result)
    if _has_index(array):
        return array if dtype.is_integer and array.size <= MAX_DIMENSIONS else None
    if dtype.name == "string":
        return None
    if array.dtype == object:
        # Python integers of any size: wrap to the width of the type as arithmetic on the device does.
        array = array.astype(np.float64) if dtype.is_float else np.vectorize(_wrap64, otypes=[np.int64])(array)
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(array.astype(compute_dtype(dtype), copy=False)).reshape(array.shape)


def _wrap64(value: Any) -> int:
    return (int(value) + 2**63) % 2**64 - 2**63
