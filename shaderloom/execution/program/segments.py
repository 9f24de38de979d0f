"""Segments of a program for the cpu provider: which nodes are grouped, and the model that they form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx

from ...compiler.frontend.model import ImportedModel
from ...compiler.frontend.topology import names_read
from ...compiler.ir.constants import TensorSource, packed
from ...compiler.staging.program_graph import PendingNode, ProgramScope
from ...cpu.segment import CpuSegment, SegmentSource, renamed
from ...model.value_types import on_device, value_types
from ...runtime.plan.errors import ShaderloomError, UnsupportedError
from .state import file_reads


class SegmentMaker:
    """Builds the segments of one model."""

    def __init__(self, model: ImportedModel, scope: ProgramScope, options: Mapping[str, Any]) -> None:
        self._model = model
        self._scope = scope
        self._options = options
        self._types: dict[str, onnx.TypeProto] | None = None
        self._segments: dict[tuple[int, ...], CpuSegment] = {}

    @property
    def types(self) -> Mapping[str, onnx.TypeProto]:
        """Types of the values of the main graph, as far as inference provides them."""
        if self._types is None:
            self._types = value_types(self._model.proto) if self._model.proto is not None else {}
        return self._types

    def choose(
        self, pending: Sequence[PendingNode], refused: Mapping[PendingNode, ShaderloomError], present: Collection[str]
    ) -> dict[PendingNode, ShaderloomError]:
        """Return the refused nodes that can run now, and those after them that no device could run either."""
        chosen: dict[PendingNode, ShaderloomError] = {}
        here = set(present)
        computed: set[str] = set()
        for item in pending:
            reads = file_reads(item)
            if not all(name in here or name in computed or self._is_constant(name) for name in reads):
                continue
            reason = refused.get(item) or item.node.refusal or self._of_the_host(item, computed)
            if reason is not None:
                chosen[item] = reason
                computed.update(name for name in item.outputs if name)
        return chosen

    def _is_constant(self, name: str) -> bool:
        return name in self._scope.constants or name in self._scope.foreign

    def _of_the_host(self, item: PendingNode, computed: Collection[str]) -> ShaderloomError | None:
        """Return why the node runs on the host, by the types of future values that no device can hold; else None."""
        for name in item.reads:
            kind = self.types.get(name) if name in computed else None
            if kind is not None and not on_device(kind):
                return UnsupportedError(f"it reads '{name}', of a type that no device can hold", origin=item.origin)
        return None

    def make(self, chosen: Sequence[PendingNode], outputs: Sequence[str]) -> tuple[CpuSegment, tuple[str, ...]]:
        """Return the segment, and the values that it reads."""
        protos = [renamed(item.node.proto, _names(item)) for item in chosen if item.node.proto is not None]
        computed = {name for item in chosen for name in item.outputs}
        read = list(dict.fromkeys(name for item in chosen for name in file_reads(item) if name not in computed))
        initializers, sparse = {}, {}
        for name in read:
            constant = self._scope.constants.get(name)
            if constant is not None:
                initializers[name] = _tensor(name, constant)
            foreign = self._scope.foreign.get(name)
            if isinstance(foreign, onnx.TensorProto):
                assert self._model.restore is not None, "a model that was read has the payloads"
                tensor = onnx.TensorProto()
                tensor.CopyFrom(self._model.restore(foreign))
                tensor.name = name
                initializers[name] = tensor
            elif foreign is not None:
                sparse[name] = foreign
        functions = [onnx.FunctionProto.FromString(each.SerializeToString()) for each in self._functions()]
        for proto in (*protos, *(node for function in functions for node in function.node)):
            self._restore(proto)
        source = SegmentSource(
            protos,
            initializers,
            tuple(outputs),
            [onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in self._model.opsets.items()],
            self._model.proto.ir_version if self._model.proto is not None else 10,
            functions,
            sparse,
            self.types,
        )
        return CpuSegment(source, self._options), tuple(read)

    def _functions(self) -> Sequence[onnx.FunctionProto]:
        """Return the functions of the model that are not inlined."""
        return self._model.proto.functions if self._model.proto is not None else ()

    def _restore(self, node: onnx.NodeProto) -> None:
        """Fill in the payloads of tensors in attributes and in nested graphs."""
        restore = self._model.restore
        assert restore is not None
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.CopyFrom(restore(attribute.t))
            for tensor in attribute.tensors:
                tensor.CopyFrom(restore(tensor))
            for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                for tensor in graph.initializer:
                    tensor.CopyFrom(restore(tensor))
                for inner in graph.node:
                    self._restore(inner)


def _names(item: PendingNode) -> dict[str, str]:
    """Return the qualified names, by names in the file, where they differ."""
    if item.synthetic or item.node.proto is None:
        return {}
    names = {*names_read(item.node.proto), *item.node.proto.output}
    qualified = {name: item.scope.find(name) for name in names if name}
    return {name: new for name, new in qualified.items() if new is not None and new != name}


def _tensor(name: str, source: TensorSource) -> onnx.TensorProto:
    return onnx.TensorProto(name=name, data_type=source.dtype.onnx, dims=source.shape, raw_data=packed(source))
