"""Declared 16-bit floats: computed as float32, and rounded where a tensor of the file is stored in memory.

A model that declares float16 or bfloat16 says how its tensors are stored, not how the sums, counts and factors on
the way to them are computed.  So the first pass, :func:`widen_halves`, turns the 16-bit floats of a graph into float32
and keeps the declared type as :attr:`~.graph.Value.storage`; whatever later passes make is float32.  Before fusion,
:func:`declare_storage` gives inputs, constants and outputs their types back, and once layouts are chosen
:func:`restore_halves` does so for what else is stored.  A value that is no tensor of the file, the sum of a mean
or a factor folded into a weight, has no declared type and stays float32 wherever it is.

``storage`` follows a tensor through rewrites as its name does.  A value that only moves elements of halves is a half,
too: nothing is lost.
"""

from __future__ import annotations

import numpy as np

from ...runtime.plan.dtypes import BFLOAT16, FLOAT16, FLOAT16_LARGEST, FLOAT16_SMALLEST_NORMAL, FLOAT32, DType
from ..compilation import Compilation
from ..fusion import Fusion, constant_values
from ..ir.constants import WidenedSource
from ..ir.graph import Graph, Node, Value
from ..kernels.family import family_of
from ..ops.registry import registry
from ..options import DEFAULT_LIMITS, Limits
from ..reference.constant_eval import evaluate_constant
from ..rewriting.builder import GraphBuilder
from ..symbolic import polynomial as ix
from ..symbolic.lanes import LANES
from .storable import StorableTypes
from .weight_types import convert_constants, is_table

HALVES = (FLOAT16, BFLOAT16)


def widen_halves(graph: Graph, limits: Limits = DEFAULT_LIMITS) -> int:
    """Turn the 16-bit floats of ``graph`` into float32 values that remember their declared type; return their number.

    A result whose type an attribute names (Cast), and one that depends on the element type of an operand
    (``OpDef.by_type``), keeps its type and is cast.  So are the graph's outputs: they have the types of the file.
    """
    if not any(value.dtype in HALVES for value in graph.values()):
        return 0
    graph.output_types = [value.dtype for value in graph.outputs]
    for value in (*graph.inputs, *graph.constants):
        _widen(value)
    nodes, graph.nodes = graph.nodes, []
    for node in nodes:
        builder = GraphBuilder(graph, node.origins, limits)
        by_type = registry.of(node).by_type
        if by_type:
            _cast_operands(builder, graph, node)
        graph.nodes.append(node)
        inferred = registry.of(node).infer(node)
        for value, (dtype, _) in zip(node.outputs, inferred):
            if value.dtype not in HALVES:
                continue
            if dtype in HALVES:
                _cast_result(builder, graph, value)
            else:
                _widen(value)
    for position, value in enumerate(graph.outputs):
        if value.storage is not None:
            origins = value.producer.origins if value.producer else ()
            stored = GraphBuilder(graph, origins, limits).op("Cast", value, to=value.storage.onnx, rounds=0)
            stored.name = value.name
            graph.outputs[position] = stored
    graph.sort()
    return sum(value.storage is not None for value in graph.values())


def _widen(value: Value) -> None:
    if value.dtype not in HALVES:
        return
    value.storage, value.dtype = value.dtype, FLOAT32
    if value.constant is not None:
        value.constant = WidenedSource(value.constant)
        if value.static_value is not None:
            value.static_value = value.constant.read()


def _cast_operands(builder: GraphBuilder, graph: Graph, node: Node) -> None:
    """Insert casts so that ``node`` reads its half operands as halves."""
    for position, value in enumerate(node.inputs):
        if value is not None and value.storage is not None and value.dtype is FLOAT32:
            graph.set_input(node, position, builder.op("Cast", value, to=value.storage.onnx))


def _cast_result(builder: GraphBuilder, graph: Graph, value: Value) -> None:
    """Let the readers of ``value``, a half, read it as float32, but for those that ask for its type.

    A cast of a half to its own type is no node.
    """
    node = value.producer
    assert node is not None
    operand = node.inputs[0] if node.op == "Cast" and not node.domain else None
    if operand is not None and operand.storage is value.dtype and operand.dtype is FLOAT32:
        graph.replace_uses(value, operand)
        return
    readers = [(reader, position) for reader, position in value.uses if not registry.of(reader).by_type]
    if not readers:
        return
    wide = builder.op("Cast", value, to=FLOAT32.onnx)
    for reader, position in readers:
        graph.set_input(reader, position, wide)


def declare_storage(graph: Graph) -> int:
    """Give inputs, constants and outputs their declared types; treat all other halves as float32.

    Return the number of values that changed.

    Kernels compute 16-bit floats in f32 anyway, and a float32 result may join the kernel of a product, where a packed
    one must own whole words.
    """
    for value in (*graph.inputs, *graph.constants):
        if value.storage is None:
            continue
        if isinstance(value.constant, WidenedSource):
            value.constant = value.constant.inner
        elif value.constant is not None:  # it was computed in float32
            value.storage = None
            continue
        value.dtype = value.storage
    for position, value in enumerate(graph.outputs):
        if value.storage is not None and graph.output_types[position] is FLOAT32:
            if value.producer is None:
                graph.outputs[position] = GraphBuilder(graph, ()).op("Cast", value, to=FLOAT32.onnx)
            else:
                value.storage = None  # memory has it once, as the output
            continue
        operand = _stored_operand(value)
        if operand is not None and operand not in graph.outputs:
            operand.dtype, operand.storage, operand.name = value.dtype, value.dtype, value.name
            graph.outputs[position] = operand
    graph.remove_dead()
    outputs = set(graph.outputs)
    halves = [value for node in graph.nodes for value in node.outputs if value.dtype in HALVES]
    for value in halves:
        if value not in outputs:
            _widen(value)
    return len(halves) + sum(value.dtype in HALVES for value in (*graph.inputs, *graph.constants))


def _stored_operand(output: Value) -> Value | None:
    """Return what an output casts for storage alone, if that value can itself be the output."""
    node = output.producer
    if node is None or node.op != "Cast" or node.domain or node.attributes.rounds or len(output.uses):
        return None
    operand = node.operand(0)
    alone = len(operand.uses) == 1
    if operand.producer is None or operand.dtype is not FLOAT32:
        return None
    family = family_of(operand.producer)
    if family is None:
        # a kernel of rows whose words cross them stores float32, and the cast follows it
        crosses = bool(output.rank) and ix.divide(output.shape[-1], LANES) is None
        cast_apart = alone and crosses and registry.of(operand.producer).is_elementwise
        return operand if not cast_apart and (alone or operand.storage is output.dtype) else None
    # Fusion decides whether the kernel of an anchor packs its results.  What others read, too, is stored once.
    shared = not alone and operand.storage is output.dtype and family.stores_packed
    return operand if shared else None


def restore_halves(graph: Graph, fusion: Fusion, compilation: Compilation) -> int:
    """Give values in memory the 16-bit types that the model declares, where the same kernel can store them.

    Where the device takes long to convert float16, only inputs, outputs, tables of which kernels read some elements,
    and what float32 would make larger than a binding are halves.  Return the number of values whose type changed.
    """
    types = storage_types(graph, fusion)
    if not compilation.target.converts_halves:
        limit = compilation.target.largest_tensor
        _widen_weights(graph, fusion, limit)
        types = {
            value: dtype
            for value, dtype in types.items()
            if dtype is not FLOAT16 or _is_half_table(value, fusion) or not _may_widen(value, limit)
        }
    if not types:
        return 0
    storable = StorableTypes(graph, fusion, compilation)
    for group in fusion.groups:
        for value in group.outputs:
            dtype = types.get(value)
            if dtype is not None and value.dtype is FLOAT32 and storable.can_store(group, dtype):
                value.dtype = dtype
    for value, dtype in types.items():
        if value not in fusion.materialised and value.producer is not None and value.dtype is FLOAT32:
            value.dtype = dtype
    return sum(value.dtype in HALVES for value in types)


def _widen_weights(graph: Graph, fusion: Fusion, limit: int) -> None:
    """Let kernels read constants of halves as float32 copies of at most ``limit`` bytes, but for tables."""
    read = dict.fromkeys(value for group in fusion.groups if not group.constant for value in group.reads)
    halves = [value for value in read if value.is_constant and value.dtype is FLOAT16 and not is_table(value, fusion)]
    convert_constants(graph, fusion, [value for value in halves if _may_widen(value, limit)], FLOAT32)


def _may_widen(value: Value, limit: int) -> bool:
    """Return whether ``value`` takes at most ``limit`` bytes as float32, and no reader asks for its type."""
    asked = any(registry.of(reader).by_type for reader, _ in value.uses)
    return not asked and ix.bounds(value.elements)[1] * FLOAT32.itemsize <= limit


def _is_half_table(value: Value, fusion: Fusion) -> bool:
    """Return whether ``value`` is a table that is made before a run."""
    group = fusion.materialised.get(value)
    return group is not None and group.constant and is_table(value, fusion)


def storage_types(graph: Graph, fusion: Fusion) -> dict[Value, DType]:
    """Return the 16-bit type of each value that is a tensor of the file, or loses nothing as one.

    An output has the type that it has.
    """
    types: dict[Value, DType] = {}
    outputs, constant = set(graph.outputs), constant_values(graph)
    computes_halves = any(value.storage is not None for value in graph.values() if value not in constant)
    for value in graph.values():
        dtype = value.storage
        if dtype is None and value not in outputs:
            dtype = _moved_type(value, types) or _weight_type(value, fusion, computes_halves)
        if dtype is not None:
            types[value] = dtype
    return types


def _moved_type(value: Value, types: dict[Value, DType]) -> DType | None:
    """Return the type of the halves that ``value`` moves unchanged, None if there is more to it."""
    node = value.producer
    if node is None or value.dtype is not FLOAT32 or not registry.of(node).is_view:
        return None
    moved = {types.get(operand) for operand in registry.of(node).data_inputs(node) if operand.dtype.is_float}
    return moved.pop() if len(moved) == 1 else None


def _weight_type(value: Value, fusion: Fusion, computes_halves: bool) -> DType | None:
    """Return float16 for a weight computed from halves that is one: every element is, or where the model
    ``computes_halves`` is zero or in the range of normal ones, so that it is rounded as the weights of the file are."""
    group = fusion.materialised.get(value)
    if group is None or not group.constant or value.dtype is not FLOAT32:
        return None
    if not any(read.dtype is FLOAT16 for read in group.reads):
        return None
    numbers = evaluate_constant(value)
    magnitudes = np.abs(numbers)
    normal = (magnitudes == 0) | ((magnitudes >= FLOAT16_SMALLEST_NORMAL) & (magnitudes <= FLOAT16_LARGEST))
    if not computes_halves and normal.all():
        normal = numbers.astype(np.float16) == numbers
    return FLOAT16 if normal.all() else None
