"""The form of a decoder that text is generated with: ``logits="token"``, and ``"first-token"`` of runs without caches.

What an exporter's decoder leaves to its caller is computed from two small inputs besides ``input_ids`` int64:

* ``sequence_ends`` int64 [batch]: the number of positions behind which a run ends, those before it and all of
  ``input_ids``, without padding on the left;
* ``logits_rows`` int64 [batch, wanted]: the rows of ``input_ids`` whose logits are wanted.  To go on, that is the last
  one unless rows behind it are padding; to verify a draft, all of it.  A model that computes the last row's logits
  alone, and declares so, has no such input and takes no padding.

``attention_mask`` and ``position_ids`` become values of these.  The outputs are ``token`` int64 [batch, wanted], the
places of the greatest of ``logits`` [batch, wanted, vocabulary], which stay an output, and the caches.  Caches of
GroupQueryAttention have a ``capacity``: the size of input and output, however many rows are valid.  Those of other
models have ``past`` rows in and as many more out as a run has tokens.  Where ``sequence_ends`` is less than these, the
first of them are padding on the left, which ``attention_mask`` hides and ``position_ids`` do not count.

A decoder of an encoder's results reads these, ``encoded`` rows, in ``encoder_hidden_states``.  Caches of their keys and
values have as many rows, or those that the file states, and no run extends them.  A merged decoder has two sides, which
``use_cache_branch`` chooses: with ``"first-token"`` it becomes that of the first run, which reads what was encoded and
no caches, and returns all of them; else that of later runs, which returns those of tokens alone.  Any other decoder is
the same with both.
"""

from __future__ import annotations

import numpy as np
from onnx import helper

from ...runtime.plan.decoder_ports import (
    BRANCH,
    CAPACITY,
    ENCODED,
    ENDS,
    HIDDEN,
    HIDDEN_MASK,
    IDS,
    LOGITS,
    LOGITS_ROWS,
    MASK,
    PAST,
    POSITIONS,
    TOKEN,
    WANTED,
    is_encoded,
)
from ...runtime.plan.errors import UnsupportedError
from .branch_choice import take_branch
from .last_logits import find_logits, take_rows
from .messages import GraphProto, ModelProto, TensorProto, TensorShapeProto, ValueInfoProto
from .proto_builder import ProtoBuilder, nodes_within

#: Scalars that some exporters ask for, with what generation wants: the branch with caches, logits of all rows
_FIXED: dict[str, bool | int] = {BRANCH: True, "num_logits_to_keep": 0}


def choose_token(proto: ModelProto, *, is_first: bool = False) -> None:
    """Give ``proto`` the ports of generation; ``is_first`` says which side of a merged decoder.

    Raises :class:`UnsupportedError` for a model that is no decoder with caches, with the name of what it has besides or
    lacks.
    """
    _take_side(proto.graph, is_first)
    _Rewrite(proto.graph, find_logits(proto)).run()


def _take_side(graph: GraphProto, is_first: bool) -> None:
    """Choose a side of a decoder of an encoder's results, if it is a merged one."""
    names = {port.name for port in graph.input}
    if not {BRANCH, HIDDEN} <= names:
        return
    if not take_branch(graph, BRANCH, value=not is_first):
        raise UnsupportedError(
            "it is not the condition of one If alone, so that the decoder does not come apart into its two sides",
            tensor=BRANCH,
            hint="export decoder_model.onnx and decoder_with_past_model.onnx",
        )
    if not is_first:
        for port in [each for each in graph.output if is_encoded(each.name)]:
            graph.output.remove(port)


class _Rewrite:
    def __init__(self, graph: GraphProto, logits: ValueInfoProto) -> None:
        self._graph = graph
        self._logits = logits
        self._builder = ProtoBuilder(graph, "generation")
        initialised = {tensor.name for tensor in graph.initializer}
        self._inputs = {port.name: port for port in graph.input if port.name not in initialised}
        self._is_pruned = logits.type.tensor_type.shape.dim[1].dim_value == 1

    def run(self) -> None:
        caches = self._caches()
        in_place = self._attended()
        if in_place and not set(caches) <= in_place:
            raise UnsupportedError(
                "of its caches GroupQueryAttention extends some alone",
                tensor=next(name for name in caches if name not in in_place),
                hint="export the model with one kind of attention",
            )
        own = [name for name in caches if not is_encoded(name)]
        for name in caches:
            if name in own:
                _name_dim(self._inputs[name], 2, CAPACITY if in_place else PAST)
            elif not self._inputs[name].type.tensor_type.shape.dim[2].dim_value:
                _name_dim(self._inputs[name], 2, ENCODED)
        for name in (HIDDEN, HIDDEN_MASK):
            if name in self._inputs:
                _name_dim(self._inputs[name], 1, ENCODED)
        self._widen_ids()
        batch, sequence = self._builder.size(IDS, 0), self._builder.size(IDS, 1)
        rows = self._builder.size(own[0], 2) if own else self._builder.integers(0)
        total = rows if in_place else self._builder.op("Add", rows, sequence)
        self._replace_mask(batch, total, in_place=bool(in_place))
        self._replace_positions(sequence)
        self._fix_scalars()
        self._add_inputs()
        self._take_token()

    def _caches(self) -> list[str]:
        """Return the inputs that are caches; raise :class:`UnsupportedError` if another one is not known."""
        if IDS not in self._inputs:
            raise UnsupportedError(f"the model has no input '{IDS}'", hint="export it as a decoder of token ids")
        caches = []
        taken = (IDS, MASK, POSITIONS, *_FIXED, HIDDEN, HIDDEN_MASK)
        for name, port in self._inputs.items():
            if len(port.type.tensor_type.shape.dim) == 4:
                caches.append(name)
            elif name not in taken:
                raise UnsupportedError(
                    "it is neither a cache of rank 4 nor an input that generation knows",
                    tensor=name,
                    hint=f"known are {', '.join(taken)}",
                )
        if not caches and HIDDEN not in self._inputs:
            raise UnsupportedError("the decoder has no caches of keys and values", hint="export it with past")
        return caches

    def _attended(self) -> set[str]:
        """Return the inputs that GroupQueryAttention reads as its past, each of which holds the whole text.

        Rows of a window's cache (``sliding_window_cache``) move as a text grows: padding would push some out that are
        wanted again, and none come back for a text that is rewound.  So such a cache becomes one of all rows, of which
        attention reads the same window.
        """
        nodes = [node for node in nodes_within(self._graph) if node.op_type == "GroupQueryAttention"]
        for node in nodes:
            for attribute in [each for each in node.attribute if each.name == "sliding_window_cache"]:
                node.attribute.remove(attribute)
        return {name for node in nodes for name in node.input[3:5]}

    def _computed(self, name: str, rank: int) -> ValueInfoProto | None:
        """Take an input out of the graph's; None if there is none, or it is no matrix of numbers."""
        port = self._inputs.get(name)
        if port is None:
            return None
        if len(port.type.tensor_type.shape.dim) != rank:
            raise UnsupportedError(f"it is not declared with rank {rank}", tensor=name, hint="export it so")
        self._graph.input.remove(port)
        return port

    def _widen_ids(self) -> None:
        """Make the tokens int64, whatever the model reads."""
        kind = self._inputs[IDS].type.tensor_type
        if kind.elem_type != TensorProto.INT64:
            self._builder.node("Cast", [IDS], self._builder.rename(IDS, f"{IDS}/narrow"), to=kind.elem_type)
            kind.elem_type = TensorProto.INT64

    def _replace_mask(self, batch: str, total: str, *, in_place: bool) -> None:
        port = self._computed(MASK, 2)
        if port is None:
            return
        builder = self._builder
        sizes = builder.op("Concat", batch, total, axis=0)
        scalar = builder.op("Squeeze", total)
        positions = builder.op("Range", self._scalar(0), scalar, self._scalar(1))
        if in_place:
            valid = builder.op("Less", positions, builder.op("Unsqueeze", ENDS, builder.integers(1)))
        else:
            padding = builder.op("Unsqueeze", builder.op("Sub", total, ENDS), builder.integers(1))
            valid = builder.op("GreaterOrEqual", positions, padding)
        valid = builder.op("Cast", valid, to=port.type.tensor_type.elem_type)
        builder.node("Expand", [valid, sizes], MASK)

    def _replace_positions(self, sequence: str) -> None:
        port = self._computed(POSITIONS, 2)
        if port is None:
            return
        builder = self._builder
        steps = builder.op("Range", self._scalar(0), builder.op("Squeeze", sequence), self._scalar(1))
        first = builder.op("Unsqueeze", builder.op("Sub", ENDS, sequence), builder.integers(1))
        moved = builder.op("Max", builder.op("Add", first, steps), builder.integers(0))
        builder.node("Cast", [moved], POSITIONS, to=port.type.tensor_type.elem_type)

    def _scalar(self, number: int) -> str:
        return self._builder.constant(np.array(number, np.int64))

    def _fix_scalars(self) -> None:
        for name, value in _FIXED.items():
            port = self._inputs.get(name)
            if port is not None:
                self._graph.input.remove(port)
                dims = [size.dim_value or 1 for size in port.type.tensor_type.shape.dim]
                dtype = helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
                self._builder.node("Identity", [self._builder.constant(np.full(dims, value, dtype))], name)

    def _add_inputs(self) -> None:
        batch = self._inputs[IDS].type.tensor_type.shape.dim[0]
        self._graph.input.append(_integers(ENDS, [None], batch))
        if not self._is_pruned:
            self._graph.input.append(_integers(LOGITS_ROWS, [None, WANTED], batch))

    def _take_token(self) -> None:
        builder, logits = self._builder, self._logits
        name = logits.name
        wanted = 1 if self._is_pruned else WANTED
        if not self._is_pruned:
            take_rows(builder, builder.rename(name, f"{name}/all"), LOGITS_ROWS, name)
        builder.node("ArgMax", [name], TOKEN, axis=2, keepdims=0)
        _name_dim(logits, 1, wanted)
        batch = logits.type.tensor_type.shape.dim[0]
        self._graph.output.insert(0, _integers(TOKEN, [None, wanted], batch))
        if name != LOGITS:
            builder.rename(name, LOGITS)
            logits.name = LOGITS


def _integers(name: str, dims: list[int | str | None], batch: TensorShapeProto.Dimension) -> ValueInfoProto:
    """Return a port int64 of these sizes, the first one being ``batch``."""
    port = helper.make_tensor_value_info(name, TensorProto.INT64, dims)
    port.type.tensor_type.shape.dim[0].CopyFrom(batch)
    return ValueInfoProto.FromString(port.SerializeToString())


def _name_dim(port: ValueInfoProto, axis: int, size: str | int) -> None:
    dim = port.type.tensor_type.shape.dim[axis]
    dim.Clear()
    if isinstance(size, str):
        dim.dim_param = size
    else:
        dim.dim_value = size
