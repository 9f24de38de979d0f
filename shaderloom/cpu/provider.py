"""The cpu provider: a whole model on the host, by onnxruntime where it is installed, else by onnx's evaluator.

It serves sessions without a device; parts of a model that a device cannot run are segments (:mod:`.segment`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..api import providers
from ..model.feeds import override_dimensions
from ..model.header import ModelHeader
from ..plans.placement import Placement
from ..runtime.plan.declared_port import DeclaredPort
from ..runtime.plan.dtypes import from_onnx
from ..runtime.plan.errors import ClosedError, ModelError, UnsupportedError
from ..runtime.plan.model_metadata import ModelMetadata

if TYPE_CHECKING:
    import onnx

    from ..compiler.frontend.model import ImportedModel
    from .segment import CpuSegment, OnnxRuntime, ReferenceEvaluator


class CpuEngine:
    """Runs one model on the host.  Its package is imported on first use of :attr:`implementation`.

    Pass exactly one of ``path`` and ``data``.  ``options`` are session options of onnxruntime, ``logits`` is that of
    :class:`~..compiler.options.CompileOptions`.  The model runs as a whole where onnxruntime can load it, else node
    by node (:mod:`.segment`).
    """

    def __init__(
        self,
        path: Path | None,
        data: bytes | None,
        options: Mapping[str, Any] | None = None,
        *,
        logits: str = "all",
    ) -> None:
        if not providers.cpu_packages():
            raise UnsupportedError("neither onnxruntime nor onnx is installed", hint="pip install 'shaderloom[cpu]'")
        self._path = path
        self._data = data
        self.options = dict(options or {})
        self._logits = logits
        self._runner: OnnxRuntime | ReferenceEvaluator | CpuSegment | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def implementation(self) -> str:
        """``"onnxruntime"``, ``"onnx.reference"``, or ``"node by node"``."""
        return self._open().name

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
        """Run the model and return ``outputs`` by name."""
        return self._open().run(feeds, outputs)

    def placement(self) -> list[Placement]:
        """Return the placement of each node of the main graph."""
        nodes = self._proto().graph.node
        packages = self.implementations() or [""] * len(nodes)
        return [
            Placement(
                node.name or f"{node.op_type}_{index}",
                node.op_type,
                node.domain,
                "cpu",
                "the session has no other provider" + (f"; by {package}" if package else ""),
            )
            for index, (node, package) in enumerate(zip(nodes, packages))
        ]

    def implementations(self) -> list[str]:
        """Return the package that runs each node of the main graph, in order; [] if unknown before a run."""
        runner = self._open()
        return (
            runner.implementations if runner.name == "node by node" else [runner.name] * len(self._proto().graph.node)
        )

    def header(self, dimensions: Mapping[str, int], denotations: Mapping[str, int]) -> ModelHeader:
        """Return the model's declared inputs and outputs with fixed dimensions; the compiler need not support the
        model.
        """
        return override_dimensions(read_header(self._proto()), dimensions, denotations)

    def import_model(self) -> ImportedModel:
        """Return the model as the compiler reads it, with what it refuses."""
        from ..compiler.frontend import load_model

        model = self._path if self._data is None else self._data
        assert model is not None, "one of the two was passed"
        return load_model(model, keep_refused=True, logits=self._logits)

    def close(self) -> None:
        self._closed = True
        self._runner = None

    def _open(self) -> OnnxRuntime | ReferenceEvaluator | CpuSegment:
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            if self._runner is None:
                self._runner = self._load()
            return self._runner

    def _load(self) -> OnnxRuntime | ReferenceEvaluator | CpuSegment:
        from .segment import OnnxRuntime, first_line

        packages = providers.cpu_packages()
        if "onnxruntime" not in packages:
            return self._reference(["onnxruntime is not installed"])
        try:
            return OnnxRuntime(self._content(), self.options)
        except Exception as error:  # onnxruntime's own classes of errors
            reason = f"onnxruntime: {first_line(error)}"
        if "onnx" not in packages:
            raise UnsupportedError(f"the cpu provider cannot load the model: {reason}; onnx is not installed")
        return self._node_by_node()

    def _reference(self, reasons: list[str]) -> ReferenceEvaluator:
        from .segment import ReferenceEvaluator, first_line, unloadable

        try:
            return ReferenceEvaluator(self._proto(payloads=True))
        except Exception as error:
            reasons.append(f"onnx.reference: {first_line(error)}")
        raise unloadable(reasons)

    def _node_by_node(self) -> CpuSegment:
        from ..model.value_types import value_types
        from .segment import CpuSegment, SegmentSource

        proto = self._proto(payloads=True)
        graph = proto.graph
        return CpuSegment(
            SegmentSource(
                list(graph.node),
                {tensor.name: tensor for tensor in graph.initializer},
                tuple(value.name for value in graph.output),
                list(proto.opset_import),
                proto.ir_version,
                list(proto.functions),
                {tensor.values.name: tensor for tensor in graph.sparse_initializer},
                value_types(proto),
            ),
            self.options,
        )

    def _content(self) -> str | bytes:
        """Return the file, or the bytes, of what onnxruntime runs."""
        if self._logits != "all":
            return self._proto(payloads=True).SerializeToString()
        if self._path is not None:
            return str(self._path)
        assert self._data is not None, "one of the two is given"
        return self._data

    def _proto(self, *, payloads: bool = False) -> onnx.ModelProto:
        """Return the model.  Raises :class:`ModelError`, and :class:`UnsupportedError` for ``logits``."""
        import onnx

        try:
            if self._path is not None:
                proto = onnx.load(str(self._path), load_external_data=False)
            else:
                proto = onnx.load_model_from_string(self._data or b"")
        except Exception as error:
            raise ModelError(f"not an ONNX model: {error}") from error
        if payloads and self._path is not None:
            try:
                onnx.load_external_data_for_model(proto, str(self._path.parent))
            except Exception as error:
                self.import_model()  # its error names the file and the tensor
                raise ModelError(f"cannot read the data of the model: {error}") from error
        if self._logits != "all":
            from ..compiler.frontend.logits_form import apply_logits

            apply_logits(proto, self._logits)
        return proto


def read_header(proto: onnx.ModelProto) -> ModelHeader:
    """Return the header of any ONNX model without inspecting its operators."""
    initialized = {tensor.name for tensor in proto.graph.initializer}
    ports = [_port(info) for info in proto.graph.input]
    return ModelHeader(
        inputs=tuple(port for port in ports if port.name not in initialized),
        overridable=tuple(port for port in ports if port.name in initialized),
        outputs=tuple(_port(info) for info in proto.graph.output),
        metadata=ModelMetadata.of(proto),
        nodes=len(proto.graph.node),
        files={},
    )


def _port(info: Any) -> DeclaredPort:
    from ..compiler.frontend.declared_types import type_text

    if not info.type.HasField("tensor_type"):
        return DeclaredPort(info.name, None, None, None, type_text(info.type))
    tensor = info.type.tensor_type
    try:
        dtype = from_onnx(tensor.elem_type).name if tensor.elem_type else None
    except UnsupportedError:  # float8 and the like, which onnx converts
        dtype = None
    text = None if dtype else type_text(info.type)
    if not tensor.HasField("shape"):
        return DeclaredPort(info.name, dtype, None, None, text)
    dims = tuple(
        dim.dim_param or None if not dim.HasField("dim_value") else int(dim.dim_value) for dim in tensor.shape.dim
    )
    meanings = tuple(dim.denotation or None for dim in tensor.shape.dim)
    return DeclaredPort(info.name, dtype, dims, meanings if any(meanings) else None, text)
