"""Run a part of a model on the host: by onnxruntime if it can load it, else node by node, each by onnxruntime or by
onnx's reference evaluator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.numpy_helper import to_array

from ..api import providers
from ..api.options import CUSTOM_OPS
from ..api.real_onnxruntime import real_onnxruntime
from ..runtime.plan.errors import InputError, RunError, UnsupportedError
from ..runtime.plan.record import record


@record(slots=False)
class SegmentSource:
    """Nodes in topological order, with all initializers and functions that they refer to."""

    nodes: Sequence[onnx.NodeProto]
    initializers: Mapping[str, onnx.TensorProto]
    outputs: tuple[str, ...]
    opsets: Sequence[onnx.OperatorSetIdProto]
    ir_version: int
    functions: Sequence[onnx.FunctionProto] = ()
    sparse: Mapping[str, onnx.SparseTensorProto] = field(default_factory=dict)
    #: types of values that are ambiguous by themselves (an empty sequence)
    types: Mapping[str, onnx.TypeProto] = field(default_factory=dict)

    def model(self, inputs: Mapping[str, onnx.TypeProto]) -> onnx.ModelProto:
        """Build the segment as a model with these inputs."""
        read = {name for node in self.nodes for name in _names_read(node)} | set(self.outputs)
        graph = onnx.GraphProto(name="segment")
        graph.node.extend(self.nodes)
        graph.input.extend(onnx.ValueInfoProto(name=name, type=kind) for name, kind in inputs.items())
        produced = {name for node in self.nodes for name in node.output}
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in self.outputs if name in produced)
        for name, tensor in self.initializers.items():
            if name in read and name not in inputs:
                graph.initializer.append(tensor)
        for name, tensor in dict(self.sparse).items():
            if name in read and name not in inputs:
                graph.sparse_initializer.append(tensor)
        return onnx.ModelProto(
            ir_version=self.ir_version, graph=graph, opset_import=self.opsets, functions=self.functions
        )

    def single(self, position: int) -> SegmentSource:
        """Return a segment of the node at this position alone."""
        node = self.nodes[position]
        outputs = tuple(name for name in node.output if name)
        return SegmentSource(
            [node],
            self.initializers,
            outputs,
            self.opsets,
            self.ir_version,
            self.functions,
            self.sparse,
            self.types,
        )

    def reads(self) -> list[str]:
        """Return the names that the segment reads from outside, dense initializers included."""
        produced: set[str] = set()
        names: dict[str, None] = {}
        for node in self.nodes:
            for name in _names_read(node):
                if name not in produced and name not in dict(self.sparse):
                    names[name] = None
            produced.update(node.output)
        return list(names)


class CpuSegment:
    """Runs a :class:`SegmentSource`.  Sessions are created for each combination of input types, and cached."""

    name = "node by node"

    def __init__(self, source: SegmentSource, options: Mapping[str, Any] | None = None) -> None:
        self.source = source
        self._options = dict(options or {})
        self._reads = source.reads()
        self._computed = {name for node in source.nodes for name in node.output}
        self._ready: dict[tuple[Any, ...], Any] = {}
        #: how each node ran last, by position: "onnxruntime" or "onnx.reference"
        self.implementations: list[str] = []

    def run(self, values: Mapping[str, Any], outputs: Sequence[str] = ()) -> dict[str, Any]:
        """Run the segment on ``values``, by name, and return its outputs by name.

        Initializers may be missing from ``values``.  ``outputs`` may name inputs, too, which are outputs of some
        models.
        """
        feeds = {name: values[name] for name in self._reads if name in values}
        types = {name: type_of(value, dict(self.source.types).get(name)) for name, value in feeds.items()}
        key = tuple((name, kind.SerializeToString()) for name, kind in types.items())
        runner = self._ready.get(key)
        if runner is None:
            runner = self._ready[key] = self._open(types, feeds)
        computed = [name for name in self.source.outputs if name in self._computed]
        results = runner.run(feeds, computed)
        self.implementations = runner.implementations
        for name in outputs:
            if name not in results:
                results[name] = values[name] if name in values else to_array(self.source.initializers[name])
        return results

    def _open(self, types: Mapping[str, onnx.TypeProto], values: Mapping[str, Any]) -> Any:
        reasons = []
        model = self.source.model(types)
        packages = providers.cpu_packages()
        if "onnxruntime" not in packages:
            reasons.append("onnxruntime is not installed")
        elif any(_is_foreign(value) for value in values.values()):
            reasons.append("onnxruntime: takes no arrays of such element types from numpy")
        else:
            try:
                return OnnxRuntime(model.SerializeToString(), self._options, len(self.source.nodes), self)
            except Exception as error:  # onnxruntime's own classes of errors
                reasons.append(f"onnxruntime: {first_line(error)}")
        if len(self.source.nodes) > 1:
            return _OneByOne(self.source, self._options)
        return self.reference(model, reasons)

    def reference(self, model: onnx.ModelProto, reasons: list[str]) -> ReferenceEvaluator:
        """Load a model in onnx's reference evaluator; ``reasons`` says why no other package runs it.  Raises
        :class:`UnsupportedError`.
        """
        if "onnx" not in providers.cpu_packages():
            reasons.append("onnx is not installed")
        else:
            try:
                return ReferenceEvaluator(model, len(self.source.nodes))
            except Exception as error:
                reasons.append(f"onnx.reference: {first_line(error)}")
        raise unloadable(reasons)


def unloadable(reasons: Sequence[str]) -> UnsupportedError:
    """Return the error for what no package on the host runs."""
    hint = (
        None if "onnxruntime" in providers.cpu_packages() else "pip install 'shaderloom[cpu]': onnxruntime may run it"
    )
    return UnsupportedError(f"the cpu provider cannot load the model: {'; '.join(reasons)}", hint=hint)


class _OneByOne:
    """Runs each node in isolation."""

    def __init__(self, source: SegmentSource, options: Mapping[str, Any]) -> None:
        self._parts = [CpuSegment(source.single(position), options) for position in range(len(source.nodes))]
        self._source = source
        last: dict[str, int] = {}
        for position, part in enumerate(self._parts):
            last.update(dict.fromkeys(part._reads, position))
        self._last = last

    @property
    def implementations(self) -> list[str]:
        return [name for part in self._parts for name in part.implementations]

    def run(self, values: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
        here = dict(values)
        wanted = set(outputs)
        for position, part in enumerate(self._parts):
            here.update(part.run(here))
            for name in part._reads:
                if self._last[name] == position and name not in wanted:
                    here.pop(name, None)
        return {name: here[name] for name in outputs}


#: Parts of names of types whose tensors onnxruntime's Python interface cannot return
_WITHOUT_NUMPY = ("float8", "float4", "int4", "int2", "bfloat16")


class OnnxRuntime:
    """onnxruntime with its CPU provider alone.  ``model`` is a path or bytes."""

    name = "onnxruntime"

    def __init__(
        self, model: str | bytes, options: Mapping[str, Any], nodes: int = 1, segment: CpuSegment | None = None
    ) -> None:
        onnxruntime = real_onnxruntime()
        settings = onnxruntime.C.SessionOptions()
        settings.log_severity_level = 4
        kinds = {
            "graph_optimization_level": onnxruntime.C.GraphOptimizationLevel,
            "execution_mode": onnxruntime.C.ExecutionMode,
        }
        for path in options.get(CUSTOM_OPS, ()):
            settings.register_custom_ops_library(path)
        for name, value in options.items():
            if name != CUSTOM_OPS:
                setattr(settings, name, kinds[name](int(value)) if name in kinds else value)
        self._session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        for port in self._session.get_outputs():
            if any(kind in port.type for kind in _WITHOUT_NUMPY):
                raise UnsupportedError(f"gives no arrays of {port.type} to numpy", tensor=port.name)
        self._model = model
        self._segment = segment
        self._instead: Any = None
        self._nodes = nodes

    @property
    def implementations(self) -> list[str]:
        return [self.name] * self._nodes if self._instead is None else self._instead.implementations

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
        if self._instead is not None:
            return self._instead.run(feeds, outputs)
        try:
            return dict(zip(outputs, self._session.run(list(outputs), dict(feeds))))
        except Exception as error:
            # Some kernels report a missing type or attribute only when they run.
            if (
                type(error).__name__ == "NotImplemented"
                and self._segment is not None
                and isinstance(self._model, bytes)
            ):
                if len(self._segment.source.nodes) > 1:
                    self._instead = _OneByOne(self._segment.source, self._segment._options)
                else:
                    model = onnx.load_model_from_string(self._model)
                    self._instead = self._segment.reference(model, [f"onnxruntime: {first_line(error)}"])
                return self._instead.run(feeds, outputs)
            kind = InputError if type(error).__name__ == "InvalidArgument" else RunError
            raise kind(f"onnxruntime refused the run: {first_line(error)}") from error


class ReferenceEvaluator:
    """onnx's reference evaluator: every operator of the standard, slowly."""

    name = "onnx.reference"

    def __init__(self, model: onnx.ModelProto, nodes: int = 1) -> None:
        import onnx.reference

        self._evaluator = onnx.reference.ReferenceEvaluator(model)
        self.implementations = [self.name] * nodes

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
        try:
            with np.errstate(all="ignore"):
                results = self._evaluator.run(list(outputs), dict(feeds))
        except Exception as error:
            raise RunError(f"onnx's reference evaluator failed: {error}") from error
        return {name: np.asarray(value) if np.isscalar(value) else value for name, value in zip(outputs, results)}


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def type_of(value: Any, declared: onnx.TypeProto | None = None) -> onnx.TypeProto:
    """Return the ONNX type of a host value; ``declared`` decides where the value is ambiguous."""
    if isinstance(value, np.ndarray):
        if value.dtype == object or value.dtype.kind in "US":
            code = int(onnx.TensorProto.STRING)
        else:
            code = helper.np_dtype_to_tensor_dtype(value.dtype)
        kind = helper.make_tensor_type_proto(code, [None] * value.ndim)
        if declared is not None and declared.HasField("optional_type"):
            return helper.make_optional_type_proto(kind)
        return kind
    if declared is not None and declared.WhichOneof("value") not in (None, "tensor_type"):
        return declared
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], dict):
        inner = type_of(value[0])
        if inner.HasField("tensor_type"):  # elements may differ in rank
            inner = helper.make_tensor_type_proto(inner.tensor_type.elem_type, None)
        return helper.make_sequence_type_proto(inner)
    raise UnsupportedError(f"the ONNX type of a value is not known: {type(value).__name__}")


def _is_foreign(value: Any) -> bool:
    """Return whether an array, or one in a sequence, has a dtype that is not built into numpy."""
    if isinstance(value, (list, tuple)):
        return any(map(_is_foreign, value))
    return isinstance(value, np.ndarray) and value.dtype.isbuiltin != 1


def _names_read(node: onnx.NodeProto) -> list[str]:
    """Return the names from outside that a node reads, those of its nested graphs included."""
    names = dict.fromkeys(name for name in node.input if name)
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else []
        for graph in (*graphs, *attribute.graphs):
            names.update(dict.fromkeys(_captured(graph)))
    return list(names)


def _captured(graph: onnx.GraphProto) -> list[str]:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {tensor.values.name for tensor in graph.sparse_initializer}
    names: dict[str, None] = {}
    for node in graph.node:
        names.update(dict.fromkeys(name for name in _names_read(node) if name not in own))
        own.update(node.output)
    names.update(dict.fromkeys(value.name for value in graph.output if value.name not in own))
    return list(names)


def renamed(node: onnx.NodeProto, rename: Mapping[str, str]) -> onnx.NodeProto:
    """Copy a node with its inputs and outputs renamed, inside its nested graphs, too."""
    if not rename:
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    _rename(copy, rename)
    return copy


def _rename(node: onnx.NodeProto, rename: Mapping[str, str]) -> None:
    for names in (node.input, node.output):
        for position, name in enumerate(names):
            names[position] = rename.get(name, name)
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else []
        for graph in (*graphs, *attribute.graphs):
            own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            own |= {name for inner in graph.node for name in inner.output}
            visible = {name: new for name, new in rename.items() if name not in own}
            for inner in graph.node:
                _rename(inner, visible)
            for value in graph.output:
                value.name = visible.get(value.name, value.name)
