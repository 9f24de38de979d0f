"""Binding input shapes: an :class:`ImportedModel` becomes an :class:`ir.Graph` in which every shape is known.

A dimension is a number, or an index over *declared dynamic* dimensions.  One forward pass infers, and folds what
depends on shapes and small constants alone.  What is left are the nodes that compute on tensor elements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field

from ...runtime.plan.dtypes import DType
from ...runtime.plan.errors import (
    InputError,
    InternalError,
    LimitError,
    ModelError,
    NotKnownError,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
    merge_refusals,
)
from ...runtime.plan.plan import Symbol
from ...runtime.plan.record import record
from ...runtime.plan.size_range import SizeRange, read_ranges
from ..frontend.model import ImportedGraph, ImportedModel, ImportedNode, ImportedPort
from ..ir.graph import Graph, Shape, Value
from ..ir.shapes import shape_fault
from ..ops.misfits import refused_misfits
from ..options import DEFAULT_LIMITS, Limits
from ..rewriting.builder import ON_DEVICE, GraphBuilder, empty_array, is_empty
from ..symbolic import polynomial as ix
from ..symbolic.dimensions import dimension
from .loop_unrolling import unroll_loop, unroll_scan
from .step_hints import advise_steps

DynamicDims = Mapping[str, Sequence[int]]  #: declared dimension -> ``(low, high)`` or ``(low, high, step)``
_UNNAMED = frozenset({"", "?"})  #: what exporters write for a dimension that is just unknown


@record
class BoundShapes:
    """Input shapes with numbers in place of names.  ``sizes`` has the number of each named dimension in this call."""

    shapes: Mapping[str, Shape]
    symbols: tuple[Symbol, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)


def bind_shapes(
    model: ImportedModel, feeds: Mapping[str, Sequence[int]], dynamic: DynamicDims | None = None
) -> BoundShapes:
    """Check the shapes of the tensors that are fed against the declared ones, and bind named dimensions.

    Inputs with a default need not be fed; one that is fed becomes an input of the graph.  A name in ``dynamic`` stays
    symbolic.  Raises :class:`InputError` for an unknown or missing input, a wrong rank, a wrong size, a name that
    is bound to two sizes, or a size that is not in the declared range.
    """
    try:
        ranges = read_ranges(dynamic or {})
    except ValueError as error:
        raise InputError(str(error)) from None
    ports = {port.name: port for port in (*model.inputs, *model.overridable)}
    for name in feeds:
        if name not in ports:
            raise InputError(f"the model has no input '{name}'", hint=f"its inputs are {', '.join(ports) or 'none'}")
    for port in model.inputs:
        if port.name not in feeds:
            raise InputError("the input is missing", tensor=port.name)
    variables = _variables(model, ranges)
    sizes: dict[str, int] = {}
    shapes = {
        name: _bind(ports[name], tuple(int(size) for size in shape), variables, sizes) for name, shape in feeds.items()
    }
    for name, allowed in ranges.items():
        if name in sizes and not allowed.allows(sizes[name]):
            raise InputError(
                f"dimension '{name}' is {sizes[name]}, outside the declared range {allowed}",
                hint=allowed.refusal(sizes[name]),
            )
    symbols = tuple(Symbol(name, *ranges[name]) for name in sorted(variables) if isinstance(variables[name], ix.Index))
    return BoundShapes(shapes, symbols, sizes)


def _variables(model: ImportedModel, ranges: Mapping[str, SizeRange]) -> dict[str, ix.Dim]:
    named = {
        dim
        for port in (*model.inputs, *model.overridable)
        for dim in port.dims or ()
        if isinstance(dim, str) and dim not in _UNNAMED
    }
    for name in ranges:
        if name not in named:
            listed = ", ".join(sorted(named)) or "none"
            raise InputError(f"no input has a dimension '{name}'", hint=f"named dimensions are {listed}")
    return {name: dimension(name, *sizes) for name, sizes in ranges.items()}


def _bind(port: ImportedPort, shape: tuple[int, ...], variables: Mapping[str, ix.Dim], sizes: dict[str, int]) -> Shape:
    if any(size < 0 for size in shape):
        raise InputError(f"the shape {shape} has a negative size", tensor=port.name)
    fault = shape_fault(shape)
    if fault is not None:
        raise InputError(fault, tensor=port.name)
    if port.dims is None:
        return shape
    if len(shape) != len(port.dims):
        raise InputError(f"rank {len(port.dims)} is expected, not {len(shape)}: {_declared(port)}", tensor=port.name)
    bound: list[ix.Dim] = []
    for axis, (size, dim) in enumerate(zip(shape, port.dims)):
        if isinstance(dim, int) and size != dim:
            raise InputError(f"size {dim} is expected at axis {axis}, not {size}: {_declared(port)}", tensor=port.name)
        if isinstance(dim, str) and dim not in _UNNAMED:
            if sizes.setdefault(dim, size) != size:
                raise InputError(
                    f"dimension '{dim}' is {size} at axis {axis}, but {sizes[dim]} elsewhere", tensor=port.name
                )
            bound.append(variables.get(dim, size))
        else:
            bound.append(size)
    return tuple(bound)


def _declared(port: ImportedPort) -> str:
    return f"the shape is declared as ({', '.join('?' if dim is None else str(dim) for dim in port.dims or ())})"


def specialise(
    model: ImportedModel,
    shapes: Mapping[str, Shape],
    limits: Limits = DEFAULT_LIMITS,
    *,
    start: Callable[[GraphBuilder], Specialiser] | None = None,
) -> Graph:
    """Build the graph of ``model`` for these input shapes (see :func:`bind_shapes`).

    ``start`` returns what binds the nodes, None: a :class:`Specialiser`.

    Raises :class:`ShapeError`, :class:`UnsupportedError` or :class:`LimitError` with the first node that fails.  If
    declared ranges are the cause and steps would help, the remedy suggests them.
    """
    try:
        return _specialise(model, shapes, limits, start)
    except ShapeError as error:
        if limits.every_size:  # the ranges are not declared
            raise
        error.hint = advise_steps(shapes, lambda other: _is_possible(model, other, limits)) or error.hint
        raise


#: The largest size of an axis that a model leaves open, where only what cannot be compiled at all is asked for
_ANY_SIZE = 4096


def refusals(model: ImportedModel) -> list[ShaderloomError]:
    """Return the errors that no choice of input shapes can avoid.

    These are nodes that the compiler cannot read, and nodes rejected by type and shape inference.  Nodes that depend on
    a rejected node, or on one whose shape stays unknown, are not judged.
    """
    errors: list[ShaderloomError] = []
    shapes = {
        port.name: tuple(
            dim if isinstance(dim, int) else dimension(str(dim or f"{port.name}_{axis}"), 1, _ANY_SIZE)
            for axis, dim in enumerate(port.dims)
        )
        for port in model.graph.inputs
        if port.dims is not None and port.refusal is None
    }
    try:
        _specialise(model, shapes, DEFAULT_LIMITS)
    except UnsupportedError as error:
        errors = list(error.parts or (error,))
    except ShaderloomError:
        pass  # shapes do not fit, whatever is refused
    reported = {error.origin for error in errors}
    return [
        *errors,
        *(node.refusal for node in model.refused if node.refusal is not None and node.origin not in reported),
    ]


def _is_possible(model: ImportedModel, shapes: Mapping[str, Shape], limits: Limits) -> bool:
    try:
        _specialise(model, shapes, limits)
    except ShaderloomError:
        return False
    return True


def _specialise(
    model: ImportedModel,
    shapes: Mapping[str, Shape],
    limits: Limits,
    start: Callable[[GraphBuilder], Specialiser] | None = None,
) -> Graph:
    graph = Graph(model.graph.name)
    builder = GraphBuilder(graph, limits=limits)
    scope = Scope(model.graph, None)
    for port in model.graph.inputs:
        if port.name in shapes:
            assert port.dtype is not None  # the frontend refuses an input without a type
            value = scope.values[port.name] = graph.add_input(port.name, port.dtype, shapes[port.name])
            if is_empty(value.shape):
                value.static_value = empty_array(value.shape, value.dtype)
    names = {port.name for port in model.graph.inputs}
    unknown = names - scope.values.keys() - model.graph.constants.keys()
    refused: list[ShaderloomError] = []
    try:
        (start or Specialiser)(builder).run(scope, missing=unknown | set(model.graph.foreign))
    except UnsupportedError as error:
        refused.append(error)
    for port in model.graph.outputs:
        if refused and port.name not in scope.values:
            continue  # it may be computed from what is refused
        value = scope.lookup(port.name, builder)
        if not value.dtype.on_device:
            refused.append(_refusal_of(model.graph, port.name, value.dtype))
        graph.outputs.append(value)
        graph.output_names.append(port.name)
    if not refused:  # else what reads them is refused
        refused += [
            _refusal_of(model.graph, each.name, each.dtype) for each in graph.inputs if not each.dtype.on_device
        ]
    if refused:
        raise merge_refusals(refused)
    graph.remove_dead()
    return graph


def _refusal_of(source: ImportedGraph, name: str, dtype: DType) -> UnsupportedError:
    """Return the error for an input, or an output with known elements, whose type the device cannot store."""
    node = next((node for node in source.nodes if name in node.outputs), None)
    op, origin = (node.op, node.origin) if node else (None, None)
    error = UnsupportedError.of_result(op, dtype.name, ON_DEVICE, origin=origin)
    error.tensor = name
    return error


class Scope:
    """Values by name: of one imported graph and of those around it.  Constants join the graph when first read."""

    def __init__(self, source: ImportedGraph, outer: Scope | None) -> None:
        self.source = source
        self.outer = outer
        self.values: dict[str, Value] = {}
        #: the iterations of loops that are written out around it; None where they are not known
        self.iterations: tuple[int, ...] | None = () if outer is None else outer.iterations
        #: how often the loops around it have run its nodes so far
        self.runs: int = 1 if outer is None else outer.runs

    def lookup(self, name: str, builder: GraphBuilder) -> Value:
        """Return the value of a name, innermost scope first; ``builder`` adds a constant to the graph."""
        value = self.values.get(name)
        if value is not None:
            return value
        constant = self.source.constants.get(name)
        if constant is not None:
            value = self.values[name] = builder.add_constant(name, constant)
            return value
        if self.outer is None:
            raise InternalError("no value of this name is in scope", tensor=name)
        return self.outer.lookup(name, builder)


class Specialiser:
    """Runs nodes in order, each into the same flat graph, and reports all refused nodes together at the end."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder

    def run(self, scope: Scope, missing: Collection[str] = ()) -> None:
        """Bind every node of ``scope`` in order; skip nodes that depend on the unavailable values ``missing``."""
        refused: list[ShaderloomError] = []
        missing = set(missing)  #: with results of what is refused, and of all that reads them
        for node in scope.source.nodes:
            if missing and (node.blocks or not missing.isdisjoint(node.inputs)):
                missing.update(node.outputs)
                continue
            try:
                results = self._results(node, scope)
            except ShaderloomError as error:
                error.origin = error.origin or node.origin
                if not isinstance(error, UnsupportedError):
                    if refused:
                        raise merge_refusals(refused) from None
                    raise
                refused.append(error)
                missing.update(name for name in node.outputs if name)
                continue
            if len(results) < len(node.outputs):
                raise ModelError(f"{node.op} has {len(results)} outputs, not {len(node.outputs)}", origin=node.origin)
            if len(self.builder.graph.nodes) > self.builder.limits.nodes:
                raise LimitError(
                    f"the graph has more than {self.builder.limits.nodes:,} nodes with its loops written out",
                    origin=node.origin,
                    hint="raise caps.nodes",
                )
            scope.values.update((name, value) for name, value in zip(node.outputs, results) if name)
        if refused:
            raise merge_refusals(refused)

    def _results(self, node: ImportedNode, scope: Scope) -> Sequence[Value]:
        if node.refusal is not None:
            raise node.refusal
        inputs = [scope.lookup(name, self.builder) if name else None for name in node.inputs]
        if node.definition is None and node.op == "If":
            return self._branch(node, inputs, scope)
        return self.apply(node, inputs, scope)

    def apply(self, node: ImportedNode, inputs: Sequence[Value | None], scope: Scope) -> Sequence[Value]:
        """Return the results of a node other than If; bodies of a Loop or Scan resolve outer names in ``scope``."""
        origin = dataclasses.replace(node.origin, iterations=scope.iterations) if scope.iterations else node.origin
        builder = GraphBuilder(self.builder.graph, (origin,), self.builder.limits)
        if node.definition is None:
            unroll = unroll_scan if node.op == "Scan" else unroll_loop
            return unroll(
                builder, node, inputs, scope.runs, lambda body, values, number: self._body(body, values, number, scope)
            )
        with refused_misfits(node.op, inputs, node.origin):
            return builder.emit(node.definition, inputs, node.attributes, node.outputs)

    def _body(self, body: ImportedGraph, values: Sequence[Value], iteration: int | None, scope: Scope) -> list[Value]:
        """Run a body with the values of its inputs."""
        if len(values) != len(body.inputs):
            raise ModelError(f"a body takes {len(body.inputs)} values, but the node has {len(values)} for it")
        inner = Scope(body, scope)
        inner.iterations = None if iteration is None or scope.iterations is None else (*scope.iterations, iteration)
        inner.runs = scope.runs * (1 if iteration is None else iteration + 1)
        inner.values.update((port.name, value) for port, value in zip(body.inputs, values, strict=True))
        self.run(inner)
        return [inner.lookup(port.name, self.builder) for port in body.outputs]

    def _branch(self, node: ImportedNode, inputs: Sequence[Value | None], scope: Scope) -> Sequence[Value]:
        """Inline the branch of an ``If`` that is taken; the other branch is never inspected."""
        condition = inputs[0]
        if condition is None or condition.static_value is None or condition.static_value.size != 1:
            raise NotKnownError(
                "the condition of If is computed from elements of the model's inputs; it must be known at compile time"
            )
        side = "then_branch" if condition.static_value.reshape(-1)[0] else "else_branch"
        block = node.blocks.get(side)
        if block is None:
            raise ModelError(f"If needs the attribute '{side}'")
        inner = Scope(block.graph, scope)
        self.run(inner)
        return [inner.lookup(port.name, self.builder) for port in block.graph.outputs]
