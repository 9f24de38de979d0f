"""GraphProto -> :class:`ImportedGraph`: names resolved, operators looked up, attributes typed, versions adapted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...runtime.plan import dtypes
from ...runtime.plan.errors import LimitError, ModelError, Origin, ShaderloomError, UnsupportedError
from ..ir.constants import InlineSource, TensorSource
from ..ir.shapes import MAX_RANK
from ..ops.registry import OpDef, RawNode, registry
from .attributes import check_kinds, read_attribute, typed_attributes
from .declared_types import type_text
from .messages import GraphProto, NodeProto, SparseTensorProto, TensorProto, TensorShapeProto, ValueInfoProto
from .model import DeclaredDim, ImportedBlock, ImportedGraph, ImportedNode, ImportedPort
from .schemas import hint_for, opset_of, signature
from .tensors import TensorReader, constant_of_attributes
from .topology import topological_order

#: operators that the specialiser resolves by itself
STRUCTURAL = frozenset({"If", "Loop", "Scan"})


class GraphImporter:
    """Imports one graph.  ``outer`` are the names that nested graphs may read from the graphs around them.

    With ``keep_refused`` a node, initializer or input that the compiler has no means for is part of the graph, with the
    reason, instead of an error: another provider may run it.
    """

    def __init__(
        self,
        proto: GraphProto,
        path: str,
        opsets: Mapping[str, int],
        tensors: TensorReader,
        outer: frozenset[str] = frozenset(),
        *,
        keep_refused: bool = False,
    ) -> None:
        self._proto = proto
        self._path = path
        self._opsets = opsets
        self._tensors = tensors
        self._outer = outer
        self._constants: dict[str, TensorSource] = {}
        self._defined: set[str] = set()
        self._fresh = 0
        self._keep_refused = keep_refused
        self._foreign: dict[str, TensorProto | SparseTensorProto] = {}

    def run(self) -> ImportedGraph:
        """Import the graph.  Raises a :class:`ShaderloomError` that names the first invalid node or tensor."""
        inputs = tuple(self._ports(self._proto.input))
        for port in inputs:
            self._define(port.name, "an input")
        self._read_initializers({port.name for port in inputs})
        nodes = []
        for position in topological_order(self._proto.node, self._path):
            proto = self._proto.node[position]
            domain = "" if proto.domain == "ai.onnx" else proto.domain
            opset = self._opsets.get(domain, 0)
            origin = Origin(self._path, position, proto.op_type, proto.name, domain, opset)
            try:
                node = self._node(proto, origin)
            except UnsupportedError as error:
                error.origin = error.origin or origin
                if not self._keep_refused:
                    raise
                node = self._refused(proto, origin, error)
            except ShaderloomError as error:
                error.origin = error.origin or origin
                raise
            if node is not None:
                nodes.append(node)
        outputs = tuple(self._ports(self._proto.output))
        if not outputs:
            raise ModelError(f"the graph '{self._path}' has no outputs")
        for port in outputs:
            if port.name not in self._defined and port.name not in self._outer:
                raise ModelError(f"nothing computes this output of the graph '{self._path}'", tensor=port.name)
        return ImportedGraph(self._path, inputs, outputs, self._constants, tuple(nodes), self._foreign)

    # -- names and constants ---------------------------------------------------------------------------------------

    def _define(self, name: str, what: str) -> None:
        if not name:
            raise ModelError(f"{what} of the graph '{self._path}' has no name")
        if name in self._defined:
            raise ModelError(f"the name is defined twice in the graph '{self._path}'", tensor=name)
        self._defined.add(name)

    def _read_initializers(self, inputs: set[str]) -> None:
        if self._proto.sparse_initializer and not self._keep_refused:
            raise UnsupportedError("sparse initializers are not supported")
        for sparse in self._proto.sparse_initializer:
            self._define(sparse.values.name, "a sparse initializer")
            self._foreign[sparse.values.name] = sparse
        for tensor in self._proto.initializer:
            if tensor.name in self._constants:
                raise ModelError("the initializer is defined twice", tensor=tensor.name)
            if tensor.name not in inputs:
                self._define(tensor.name, "an initializer")
            try:
                self._constants[tensor.name] = self._tensors.source(tensor, tensor.name)
            except UnsupportedError:
                if not self._keep_refused:
                    raise
                self._foreign[tensor.name] = tensor

    def _add_constant(self, array: np.ndarray) -> str:
        """Add an inline constant for an adapter, under a name that no file can contain, and return that name."""
        self._fresh += 1
        name = f"{self._path}\0constant{self._fresh}"
        self._constants[name] = InlineSource(np.asarray(array))
        self._defined.add(name)
        return name

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _node(self, proto: NodeProto, origin: Origin) -> ImportedNode | None:
        """Import one node; return None for a Constant, which becomes a constant of the graph."""
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        opset = opset_of(domain, self._opsets)
        for name in proto.input:
            if name and name not in self._defined and name not in self._outer:
                raise ModelError("a node reads a value that nothing defines", tensor=name)
        standard_op = proto.op_type if not domain else ""
        if standard_op == "Constant":
            self._check_operands(proto, domain, opset)
            self._read_constant(proto)
            return None
        for name in proto.input:
            if name in self._foreign:
                raise UnsupportedError(f"it reads the initializer '{name}', of a type that no device can hold")
        definition = None if standard_op in STRUCTURAL else self._definition(proto, domain, opset)
        version = self._check_operands(proto, domain, opset)
        values = {item.name: read_attribute(item, self._attribute_tensor) for item in proto.attribute}
        standard = signature(proto.op_type, domain, opset)
        if standard is not None:
            check_kinds(proto, standard.kinds, values, origin)
        if standard_op == "Scan":
            _check_scanned(values.get("num_scan_inputs", 1), len(proto.input) - (opset < 9))  # 8: lengths come first
        raw = RawNode(proto.op_type, domain, version, list(proto.input), list(proto.output), values, self._add_constant)
        blocks = self._blocks(raw, origin)
        attributes: Any = raw.attributes  # of structural operators as they are
        if definition is not None:
            for newest, adapt in definition.adapters:
                if version <= newest:
                    adapt(raw)
            attributes = typed_attributes(definition, raw.attributes, origin)
        for name in proto.output:
            if name:
                self._define(name, "an output")
        while raw.inputs and not raw.inputs[-1]:
            raw.inputs.pop()
        while raw.outputs and not raw.outputs[-1]:
            raw.outputs.pop()
        return ImportedNode(
            proto.op_type,
            domain,
            definition,
            tuple(raw.inputs),
            tuple(raw.outputs),
            attributes,
            origin,
            blocks,
            proto=proto,
        )

    def _refused(self, proto: NodeProto, origin: Origin, error: UnsupportedError) -> ImportedNode:
        """Import an unsupported node unchanged, for another execution provider, with ``error`` as its refusal."""
        for name in proto.output:
            if name:
                self._define(name, "an output")
        error.__traceback__ = error.__context__ = None  # it is kept, and must not keep the importer
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        inputs, outputs = tuple(proto.input), tuple(proto.output)
        return ImportedNode(proto.op_type, domain, None, inputs, outputs, {}, origin, proto=proto, refusal=error)

    def _definition(self, proto: NodeProto, domain: str, opset: int) -> OpDef:
        definition = registry.find(proto.op_type, domain)
        if definition is not None:
            return definition
        try:
            return registry.get(proto.op_type, domain)
        except UnsupportedError as error:
            refusal = UnsupportedError(f"{error.reason} (opset {opset})", hint=hint_for(proto.op_type, domain, opset))
            refusal.fault = error.fault
            raise refusal from None

    @staticmethod
    def _check_operands(proto: NodeProto, domain: str, opset: int) -> int:
        """Compare operands and attributes with the standard; gives the version of the operator."""
        standard = signature(proto.op_type, domain, opset)
        if standard is None:
            return opset
        op, count = proto.op_type, len(proto.input)
        if count < standard.min_inputs:
            listed = f" ({', '.join(standard.names[: standard.min_inputs])})" if standard.names else ""
            raise ModelError(f"{op} needs at least {standard.min_inputs} inputs, not {count}{listed}")
        if count > standard.max_inputs:
            raise ModelError(f"{op} takes at most {standard.max_inputs} inputs, not {count}")
        if len(proto.output) > standard.max_outputs:
            raise ModelError(f"{op} has at most {standard.max_outputs} outputs, not {len(proto.output)}")
        for position in standard.required:
            if position >= count or not proto.input[position]:
                raise ModelError(
                    f"input {position} of {op} is missing ({standard.names[position]})",
                    hint="only optional inputs may be left out",
                )
        names = {item.name for item in proto.attribute}
        for name in standard.required_attributes:
            if name not in names:
                raise ModelError(f"{op} needs the attribute '{name}'")
        return standard.version

    def _attribute_tensor(self, tensor: TensorProto) -> TensorSource:
        return self._tensors.source(tensor, tensor.name or "attribute")

    def _read_constant(self, proto: NodeProto) -> None:
        name = proto.output[0] if proto.output else ""
        values = {
            item.name: read_attribute(item, lambda tensor: self._tensors.source(tensor, name))
            for item in proto.attribute
        }
        value = constant_of_attributes(values, name)
        self._define(name, "a Constant")
        self._constants[name] = value

    def _blocks(self, raw: RawNode, origin: Origin) -> dict[str, ImportedBlock]:
        """Take the nested graphs out of the attributes.  They are imported when the specialiser wants them."""
        graphs = {name: value for name, value in raw.attributes.items() if isinstance(value, GraphProto)}
        visible = self._outer | self._defined if graphs else frozenset()
        blocks = {}
        for name, graph in graphs.items():
            del raw.attributes[name]
            path = f"{self._path}/{origin.name or f'{origin.op}_{origin.index}'}.{name}"
            importer = GraphImporter(graph, path, self._opsets, self._tensors, visible, keep_refused=self._keep_refused)
            blocks[name] = ImportedBlock(path, importer.run)
        return blocks

    # -- declared types --------------------------------------------------------------------------------------------

    def _ports(self, values: Iterable[ValueInfoProto]) -> Iterable[ImportedPort]:
        for value in values:
            kind = value.type.WhichOneof("value")
            if kind is None:
                yield ImportedPort(value.name, None, None)
                continue
            try:
                if kind != "tensor_type":
                    raise UnsupportedError(f"values of kind {kind} are not supported", tensor=value.name)
                tensor = value.type.tensor_type
                dtype = dtypes.from_onnx(tensor.elem_type) if tensor.elem_type else None
            except UnsupportedError as error:
                error.tensor = error.tensor or value.name
                if not self._keep_refused:
                    raise
                yield ImportedPort(value.name, None, None, refusal=error.reason, type_text=type_text(value.type))
                continue
            if len(tensor.shape.dim) > MAX_RANK:
                raise LimitError(f"{len(tensor.shape.dim)} axes; there may be {MAX_RANK}", tensor=value.name)
            dims = tuple(_declared(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
            meanings = tuple(dim.denotation or None for dim in tensor.shape.dim)
            yield ImportedPort(value.name, dtype, dims, meanings if any(meanings) else None)


def _check_scanned(scanned: int, operands: int) -> None:
    """Compare ``num_scan_inputs`` with the number of states and sequences of a Scan: as many numbers are built."""
    if not 0 < scanned <= operands:
        raise ModelError(f"num_scan_inputs of Scan is {scanned}; it has {operands} states and sequences")


def _declared(dim: TensorShapeProto.Dimension) -> DeclaredDim:
    if dim.WhichOneof("value") == "dim_param":
        return dim.dim_param or None
    return dim.dim_value if dim.dim_value > 0 else None
