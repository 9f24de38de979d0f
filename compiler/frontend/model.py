"""The imported model: an ONNX file, validated and typed, before any shape is known.

An :class:`ImportedModel` is immutable and made once per session; specialising it for input shapes never changes it.
Nodes are in topological order and in the newest form of their operator.  Constants are sources: nothing large is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...runtime.plan.checked_operand import CheckedOperand
from ...runtime.plan.dtypes import DType
from ...runtime.plan.errors import Origin, ShaderloomError
from ...runtime.plan.model_metadata import ModelMetadata
from ...runtime.plan.record import record
from ..ir.constants import MappedFile, TensorSource
from ..ops.registry import OpDef
from .declared_types import declares_halves
from .messages import ModelProto, NodeProto, SparseTensorProto, TensorProto

#: A declared dimension: a number, a name, or None when the file does not say (a number below 1 counts as that).
DeclaredDim = int | str | None


@record
class ImportedPort:
    """An input or output of a graph.  ``dims`` is None when not even the rank is declared."""

    name: str
    dtype: DType | None  #: None: not declared (outputs of nested graphs)
    dims: tuple[DeclaredDim, ...] | None
    #: what each dimension means (``DATA_BATCH``), if the file says so
    denotations: tuple[str | None, ...] | None = None
    #: why no device can hold it: a sequence, an optional value, an element type without storage
    refusal: str | None = None
    #: the type in ONNX's words, such as ``seq(tensor(float))``, of what no device can hold
    type_text: str | None = None


class ImportedBlock:
    """The body of a control-flow node; imported when it is first needed, so a branch never taken may be anything."""

    def __init__(self, name: str, importer: Callable[[], ImportedGraph]) -> None:
        self.name = name
        self._importer = importer

    @cached_property
    def graph(self) -> ImportedGraph:
        """The body.  Raises what importing it raises."""
        return self._importer()


@record
class ImportedNode:
    """An operator application.  ``inputs`` are value names, ``""`` for an omitted optional input.

    ``definition`` is None for the structural operators, which the specialiser resolves itself (If, Loop,
    Scan); their attributes are a dict.  It is None, too, for a node that the compiler cannot read, with a ``refusal``.
    ``proto`` is the node as the file has it (after functions were inlined).  An ``added`` node is in no file; its
    ``proto`` is what the cpu runs in its place, None for nothing.
    """

    op: str
    domain: str
    definition: OpDef | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Any
    origin: Origin
    blocks: Mapping[str, ImportedBlock] = field(default_factory=dict)
    proto: NodeProto | None = field(default=None, repr=False)
    refusal: ShaderloomError | None = field(default=None, repr=False)
    added: bool = False


@record
class ImportedGraph:
    """A main graph, or the body of a control-flow node, whose nodes may read names of the graphs around it."""

    name: str
    inputs: tuple[ImportedPort, ...]
    outputs: tuple[ImportedPort, ...]
    constants: Mapping[str, TensorSource]
    nodes: tuple[ImportedNode, ...]
    #: initializers that no device can hold (strings and other types without storage), as the file has them
    foreign: Mapping[str, TensorProto | SparseTensorProto] = field(default_factory=dict)


@record(slots=False)
class ImportedModel:
    """A model.  ``inputs`` are those that a caller must feed; ``overridable`` have a default among the constants."""

    graph: ImportedGraph
    inputs: tuple[ImportedPort, ...]
    overridable: tuple[ImportedPort, ...]
    outputs: tuple[ImportedPort, ...]
    metadata: ModelMetadata
    opsets: Mapping[str, int]
    path: Path | None  #: None for a model given as bytes
    data: bytes | None  #: the bytes of a model that has no path; ``SourceRef`` paths ``""`` refer to them
    files: tuple[MappedFile, ...] = ()  #: the model file and the data files that it refers to
    #: the message behind it, without payloads of tensors and with functions inlined
    proto: ModelProto | None = field(default=None, repr=False)
    #: fills in the payload of a tensor of ``proto``
    restore: Callable[[TensorProto], TensorProto] | None = field(default=None, repr=False)

    #: operands whose indices an output tells the ranges of (:mod:`.checked_indices`)
    checked: tuple[CheckedOperand, ...] = ()
    #: nodes in bodies whose indices it tells nothing about, where it was asked for
    unchecked: tuple[str, ...] = ()

    @cached_property
    def declares_halves(self) -> bool:
        """Whether a tensor may be float16 or bfloat16, in the main graph or a nested one."""
        return self.proto is None or declares_halves(self.proto.graph)

    @cached_property
    def moved_outputs(self) -> frozenset[str]:
        """Outputs whose elements are those of inputs and constants, bit for bit: views alone lead to them."""
        moved = {*(port.name for port in self.graph.inputs), *self.graph.constants}
        for node in self.graph.nodes:
            definition = node.definition
            if definition is not None and definition.is_view:
                static = definition.static_inputs
                data = {name for position, name in enumerate(node.inputs) if name and position not in static}
                moved.update(node.outputs if data <= moved else ())
        return frozenset(port.name for port in self.outputs if port.name in moved)

    @property
    def nodes_in_file(self) -> int:
        """Nodes of the main graph, without Constant nodes."""
        return sum(not node.added for node in self.graph.nodes)

    @property
    def refused(self) -> list[ImportedNode]:
        """Nodes of the main graph that the compiler cannot read; each has a refusal."""
        return [node for node in self.graph.nodes if node.refusal is not None]
