"""An ONNX file as a protocol buffer: its graphs, its nodes by the tensors that they compute, and parts of it as models.

Functions are inlined as in the compiler, so that positions of nodes and paths of graphs match those in origins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx

from ..compiler.frontend.declared_types import declares_halves
from ..compiler.frontend.load import without_functions
from ..compiler.frontend.logits_form import apply_logits
from ..compiler.frontend.schemas import read_opsets
from ..compiler.frontend.topology import names_read
from ..compiler.ir.dataflow import reachable
from ..model.model_file import check_is_file
from ..runtime.plan.errors import ModelError, Origin
from ..runtime.plan.record import record
from .graph_instance import GraphInstance

Constant = onnx.TensorProto | onnx.SparseTensorProto


@record(slots=False)
class OnnxGraph:
    """The main graph, or one in an attribute of the node ``index`` of the graph ``outer``.

    ``path`` is that of origins, ``prefix`` that of qualified names; ``loops`` counts the enclosing Loops and Scans.
    """

    path: str
    prefix: str
    proto: onnx.GraphProto
    outer: str | None = None
    index: int = 0
    is_loop_body: bool = False  #: the body of a Loop or Scan
    loops: int = 0

    @cached_property
    def producers(self) -> dict[str, int]:
        """Tensor -> index of the node that computes it."""
        return {name: index for index, node in enumerate(self.proto.node) for name in node.output if name}

    @cached_property
    def sources(self) -> dict[str, Constant | None]:
        """Names that no node computes: initializers with their message, and inputs."""
        constants: dict[str, Constant | None] = {port.name: None for port in self.proto.input}
        constants.update((tensor.name, tensor) for tensor in self.proto.initializer)
        constants.update((tensor.values.name, tensor) for tensor in self.proto.sparse_initializer)
        return constants

    @cached_property
    def captured(self) -> list[str]:
        """Names that its nodes, or its outputs, may capture from the enclosing graphs."""
        read = dict.fromkeys(name for node in self.proto.node for name in names_read(node))
        read.update(dict.fromkeys(port.name for port in self.proto.output))
        return [name for name in read if name not in self.producers and name not in self.sources]


class OnnxModel:
    """A model in a file, with the ``logits`` of :class:`~..compiler.options.CompileOptions`."""

    def __init__(self, path: Path, logits: str = "all") -> None:
        self.path = path
        check_is_file(path)
        try:
            proto = onnx.load(str(path), load_external_data=False)
        except OSError as error:
            raise ModelError(f"cannot read '{path}': {error.strerror or error}", hint="check the path") from error
        except Exception as error:  # protobuf's DecodeError
            raise ModelError(f"'{path}' is not an ONNX file, or a damaged one") from error
        self.proto: Any = without_functions(proto, read_opsets(proto.opset_import))
        apply_logits(self.proto, logits)

    @cached_property
    def graphs(self) -> dict[str, OnnxGraph]:
        """All graphs by path, outer ones first."""
        main = OnnxGraph("main", "", self.proto.graph)
        graphs = {main.path: main}
        pending = [main]
        while pending:
            graph = pending.pop(0)
            for index, node in enumerate(graph.proto.node):
                for attribute in node.attribute:
                    if attribute.HasField("g"):
                        inner = _nested(graph, index, node, attribute)
                        graphs.setdefault(inner.path, inner)
                        pending.append(inner)
        return graphs

    @cached_property
    def declares_halves(self) -> bool:
        """Whether an input, an output, a constant or a cast is float16 or bfloat16."""
        return declares_halves(self.proto.graph)

    @property
    def producers(self) -> dict[str, int]:
        """Tensor -> index of the node of the main graph that computes it."""
        return self.graphs["main"].producers

    @property
    def outputs(self) -> list[str]:
        return [output.name for output in self.proto.graph.output]

    def locate(self, path: str, name: str) -> tuple[str, str] | None:
        """Return the graph and the name in the file of a tensor that a node of the graph ``path`` computes, looked up
        by that name or by its qualified one; None if no node computes it.
        """
        graph = self.graphs.get(path)
        if graph is None:
            return None
        own = name if name in graph.producers else name.removeprefix(graph.prefix)
        return (path, own) if own in graph.producers else None

    @cached_property
    def qualified(self) -> dict[str, tuple[str, str]]:
        """Qualified name -> graph and name in the file, of every tensor that a node computes."""
        return {graph.prefix + name: (graph.path, name) for graph in self.graphs.values() for name in graph.producers}

    @cached_property
    def loop_carried(self) -> dict[str, tuple[str, str]]:
        """Qualified name -> graph and name in the file, of the inputs of loop bodies."""
        return {
            graph.prefix + port.name: (graph.path, port.name)
            for graph in self.graphs.values()
            if graph.is_loop_body
            for port in graph.proto.input
        }

    def defining_graph(self, path: str, name: str) -> OnnxGraph | None:
        """Return the graph that defines a name visible in the graph ``path``, or None."""
        graph: OnnxGraph | None = self.graphs[path]
        while graph is not None and name not in graph.producers and name not in graph.sources:
            graph = None if graph.outer is None else self.graphs[graph.outer]
        return graph

    def instance_of(self, path: str, iterations: tuple[int, ...]) -> GraphInstance | None:
        """Return the instance of a graph at these loop iterations; None if more loops enclose it."""
        loops = self.graphs[path].loops
        return GraphInstance(path, iterations[:loops]) if loops <= len(iterations) else None

    def node_text(self, index: int, path: str = "main") -> str:
        """Format a node as errors and plans do."""
        node = self.graphs[path].proto.node[index]
        return str(Origin(path, index, node.op_type, node.name))

    def maker(self, name: str, path: str = "main") -> str:
        """Return, as text, the node that computes a tensor of a graph; for an input of a nested graph the node that
        owns it, and "" for inputs of the model and initializers.
        """
        graph = self.graphs[path]
        index = graph.producers.get(name)
        if index is not None:
            return self.node_text(index, path)
        return "" if graph.outer is None else self.node_text(graph.index, graph.outer)

    def with_outputs(self, names: Collection[str]) -> onnx.ModelProto:
        """Copy the model with these outputs and only the nodes they depend on; external data is not copied."""
        copy = onnx.ModelProto()
        copy.CopyFrom(self.proto)
        declared = {output.name: output for output in self.proto.graph.output}
        del copy.graph.output[:]
        copy.graph.output.extend(declared.get(name) or onnx.ValueInfoProto(name=name) for name in names)
        needed = self.ancestors(names)
        nodes = [node for index, node in enumerate(self.proto.graph.node) if index in needed]
        del copy.graph.node[:]
        copy.graph.node.extend(nodes)
        return copy

    def of_nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        types: Mapping[str, onnx.TypeProto],
        constants: Mapping[str, Constant],
    ) -> onnx.ModelProto:
        """Build a model of these nodes with all their results as outputs; its inputs have ``types``."""
        body = onnx.GraphProto(name="body", node=nodes)
        for constant in constants.values():
            if isinstance(constant, onnx.TensorProto):
                body.initializer.append(constant)
            else:
                body.sparse_initializer.append(constant)
        body.input.extend(onnx.ValueInfoProto(name=name, type=kind) for name, kind in types.items())
        body.output.extend(onnx.ValueInfoProto(name=name) for node in nodes for name in node.output if name)
        proto = self.proto
        return onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, graph=body)

    def ancestors(self, names: Collection[str]) -> set[int]:
        """Return the main-graph nodes in the backward slice of these tensors."""
        nodes, producers = self.proto.graph.node, self.producers

        def makers(names: Iterable[str]) -> list[int]:
            return [producers[name] for name in names if name in producers]

        return reachable(makers(names), lambda index: makers(names_read(nodes[index])))

    def descendants(self, nodes: Collection[int]) -> set[str]:
        """Return the main-graph tensors in the forward slice of these nodes, their outputs included."""
        readers: dict[str, list[int]] = {}
        for index, node in enumerate(self.proto.graph.node):
            for name in names_read(node):
                readers.setdefault(name, []).append(index)

        def outputs(index: int) -> list[str]:
            return [name for name in self.proto.graph.node[index].output if name]

        first = [name for index in nodes for name in outputs(index)]
        return reachable(first, lambda name: [output for index in readers.get(name, ()) for output in outputs(index)])


def _nested(outer: OnnxGraph, index: int, node: onnx.NodeProto, attribute: onnx.AttributeProto) -> OnnxGraph:
    is_loop_body = node.op_type in ("Loop", "Scan") and not node.domain
    return OnnxGraph(
        f"{outer.path}/{node.name or f'{node.op_type}_{index}'}.{attribute.name}",
        f"{outer.prefix}{node.op_type}_{index}.{attribute.name}/",
        attribute.g,
        outer.path,
        index,
        is_loop_body,
        outer.loops + is_loop_body,
    )
