"""Logits of the last position alone: ``logits="last"``, as nodes behind the output.

A decoder computes logits [batch, sequence, vocabulary], of which a caller that generates text reads one row of each
sequence.  Here the output becomes [batch, 1, vocabulary], the row of the last valid position; that nothing else is
computed follows from a pass of the compiler (:mod:`...passes.rows`).  Rows are

* those that the lengths of a GroupQueryAttention name: ``seqlens_k`` where the sequence is the whole of the total
  length, since then it is padded on the right, else the last;
* else those of the last number other than 0 in the input ``attention_mask`` [batch, total];
* else the last of the sequence.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...runtime.plan.decoder_ports import LOGITS, MASK
from ...runtime.plan.errors import UnsupportedError
from ..ir.dataflow import preorder
from .messages import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from .proto_builder import ProtoBuilder, nodes_within

#: The first version of the standard's operators that has all that is built here in one form
OPSET = 13

_PRODUCTS = frozenset(
    {
        "MatMul",
        "Gemm",
        "MatMulNBits",
        "MatMulBnb4",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
        "FusedMatMul",
        "QLinearMatMul",
    }
)
#: Operators behind which a product is looked for
_BEHIND = frozenset(
    {"Add", "Sub", "Mul", "Div", "Tanh", "Clip", "Cast", "Identity", "Reshape", "Transpose", "DequantizeLinear"}
)
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})


def take_last_logits(proto: ModelProto) -> None:
    """Let the logits of ``proto`` be those of the last position; those of all positions get another name.

    Raises :class:`UnsupportedError` if no output, or more than one, can be
    the logits.
    """
    _Rewrite(proto.graph, find_logits(proto)).run()


def find_logits(proto: ModelProto) -> ValueInfoProto:
    """Return the output that is the logits.

    Raises :class:`UnsupportedError` if no output, or more than one, can be, and for an opset before 13.
    """
    opset = max((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < OPSET:
        raise UnsupportedError(
            f"the model has opset {opset}; the last row is taken with operators of opset {OPSET}",
            hint="convert it with onnx.version_converter, or leave logits at 'all'",
        )
    return _logits(proto.graph)


def _logits(graph: GraphProto) -> ValueInfoProto:
    """Return the output ``logits``, or else the only one of rank 3 that a product computes."""
    named = [output for output in graph.output if output.name == LOGITS]
    if named:
        if not _has_rank_3(named[0]):
            raise UnsupportedError(
                "the logits are not declared as [batch, sequence, vocabulary]",
                tensor=LOGITS,
                hint="declare this shape in the file, or leave logits at 'all'",
            )
        return named[0]
    producers = {name: node for node in graph.node for name in node.output if name}
    candidates = [output for output in graph.output if _has_rank_3(output) and _is_product(output.name, producers)]
    if len(candidates) != 1:
        listed = f": {', '.join(output.name for output in candidates)}" if candidates else ""
        raise UnsupportedError(
            f"{len(candidates) or 'no'} outputs of rank 3 are results of a product{listed}",
            hint=f"name the output '{LOGITS}', or leave logits at 'all'",
        )
    return candidates[0]


def _has_rank_3(output: ValueInfoProto) -> bool:
    tensor = output.type.tensor_type
    return tensor.elem_type in _FLOATS and tensor.HasField("shape") and len(tensor.shape.dim) == 3


def _is_product(name: str, producers: dict[str, NodeProto]) -> bool:
    """Return whether ``name`` is a product, or arithmetic behind one."""

    def operands(read: str) -> Iterable[str]:
        return producers[read].input if read in producers and producers[read].op_type in _BEHIND else ()

    return any(read in producers and producers[read].op_type in _PRODUCTS for read in preorder([name], operands))


class _Rewrite:
    """Appends the nodes that take the last valid row of ``output``."""

    def __init__(self, graph: GraphProto, output: ValueInfoProto) -> None:
        self._graph = graph
        self._output = output
        self._builder = ProtoBuilder(graph, output.name)

    def run(self) -> None:
        name = self._output.name
        self._all = self._builder.rename(name, f"{name}/all")
        position = self._position()
        if position is None:
            self._take_last(name)
        else:
            row = self._builder.op("Unsqueeze", position, self._builder.integers(1))
            take_rows(self._builder, self._all, row, name)
        size = self._output.type.tensor_type.shape.dim[1]
        size.Clear()
        size.dim_value = 1

    def _position(self) -> str | None:
        """Return the value [batch] of the position in the sequence of the last valid row; None: that is the last."""
        for node in nodes_within(self._graph):
            if node.op_type == "GroupQueryAttention" and node.domain == "com.microsoft" and len(node.input) > 6:
                return self._of_lengths(node.input[5], node.input[6])
        for port in self._graph.input:
            if port.name == MASK and len(port.type.tensor_type.shape.dim) == 2:
                return self._of_mask(port.name)
        return None

    def _of_lengths(self, lengths: str, total: str) -> str:
        visible = {value.name for value in (*self._graph.input, *self._graph.initializer)}
        visible.update(name for node in self._graph.node for name in node.output)
        if lengths not in visible or total not in visible:
            raise UnsupportedError(
                "the lengths of a GroupQueryAttention are known inside a branch or a loop alone",
                tensor=lengths,
                hint="leave logits at 'all'",
            )
        builder = self._builder
        sequence = builder.size(self._all, 1)
        valid = builder.op("Cast", builder.op("Reshape", lengths, builder.integers(-1)), to=TensorProto.INT64)
        whole = builder.op("Cast", builder.op("Reshape", total, builder.integers(1)), to=TensorProto.INT64)
        last = builder.op("Sub", sequence, builder.integers(1))
        return builder.op("Where", builder.op("Equal", whole, sequence), valid, last)

    def _of_mask(self, mask: str) -> str:
        builder = self._builder
        valid = builder.op("Cast", builder.op("Cast", mask, to=TensorProto.BOOL), to=TensorProto.INT32)
        last = builder.op("ArgMax", valid, axis=1, keepdims=0, select_last_index=1)
        past = builder.op("Sub", builder.size(mask, 1), builder.size(self._all, 1))
        return builder.op("Max", builder.op("Sub", last, past), builder.integers(0))

    def _take_last(self, result: str) -> None:
        builder = self._builder
        ends = builder.integers(np.iinfo(np.int64).max)
        builder.node("Slice", [self._all, builder.integers(-1), ends, builder.integers(1)], result)


def take_rows(builder: ProtoBuilder, logits: str, positions: str, result: str) -> None:
    """Compute ``result`` [batch, rows, vocabulary]: the rows of ``logits`` at ``positions`` [batch, rows]."""
    builder.node("GatherND", [logits, builder.op("Unsqueeze", positions, builder.integers(2))], result, batch_dims=1)
