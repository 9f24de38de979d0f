"""The cpu provider: a whole model on the host, by onnxruntime where it is installed, else by onnx's evaluator.

It serves sessions that have no device, and inputs for which a model cannot be compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .feeds import override_dimensions
from .header import HeaderPort, ModelHeader, ModelMetadata
from .providers import cpu_packages
from .runtime.dtypes import from_onnx
from .runtime.errors import ClosedError, InputError, ModelError, UnsupportedError


class CpuEngine:
    """Runs one model on the host.  The package behind it is loaded with the first use of :attr:`implementation`.

    Exactly one of ``path`` and ``data`` is given.  ``options`` are session options of onnxruntime.
    """

    def __init__(self, path: Path | None, data: bytes | None, options: Mapping[str, Any] | None = None) -> None:
        if not cpu_packages():
            raise UnsupportedError("neither onnxruntime nor onnx is installed", hint="pip install onnxruntime")
        self._path = path
        self._data = data
        self._options = dict(options or {})
        self._runner: _OnnxRuntime | _Reference | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def implementation(self) -> str:
        """``"onnxruntime"`` or ``"onnx.reference"``."""
        return self._open().name

    def run(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str]) -> dict[str, Any]:
        """Outputs by name."""
        return self._open().run(feeds, outputs)

    def header(self, dimensions: Mapping[str, int], denotations: Mapping[str, int]) -> ModelHeader:
        """What the model says of its inputs and outputs, with fixed dimensions; the compiler need not know it."""
        return override_dimensions(read_header(self._path, self._data), dimensions, denotations)

    def close(self) -> None:
        self._closed = True
        self._runner = None

    def _open(self) -> _OnnxRuntime | _Reference:
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            if self._runner is None:
                self._runner = self._load()
            return self._runner

    def _load(self) -> _OnnxRuntime | _Reference:
        model: Any = str(self._path) if self._path is not None else self._data
        reasons = []
        for package, kind in (("onnxruntime", _OnnxRuntime), ("onnx", _Reference)):
            if package not in cpu_packages():
                reasons.append(f"{package} is not installed")
                continue
            try:
                return kind(model, self._options)
            except Exception as error:  # onnxruntime's own classes of errors, NotImplementedError, and many more
                first = str(error).strip().splitlines()
                reasons.append(f"{kind.name}: {first[0] if first else type(error).__name__}")
        raise UnsupportedError(f"the cpu provider cannot load the model: {'; '.join(reasons)}")


class _OnnxRuntime:
    """onnxruntime with its CPU provider alone."""

    name = "onnxruntime"

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        kinds = {
            "graph_optimization_level": onnxruntime.GraphOptimizationLevel,
            "execution_mode": onnxruntime.ExecutionMode,
        }
        for name, value in options.items():
            setattr(settings, name, kinds[name](int(value)) if name in kinds else value)
        self._session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])

    def run(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str]) -> dict[str, Any]:
        try:
            return dict(zip(outputs, self._session.run(list(outputs), dict(feeds))))
        except Exception as error:
            raise InputError(f"onnxruntime refused the run: {str(error).strip().splitlines()[0]}") from error


class _Reference:
    """onnx's reference evaluator: every operator of the standard, slowly."""

    name = "onnx.reference"

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        import onnx
        import onnx.reference

        proto = onnx.load(model) if isinstance(model, str) else onnx.load_model_from_string(model)
        self._evaluator = onnx.reference.ReferenceEvaluator(proto)

    def run(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str]) -> dict[str, Any]:
        try:
            results = self._evaluator.run(list(outputs), dict(feeds))
        except Exception as error:
            raise InputError(f"onnx's reference evaluator failed: {error}") from error
        return {name: np.asarray(value) if np.isscalar(value) else value for name, value in zip(outputs, results)}


def read_header(path: Path | None, data: bytes | None) -> ModelHeader:
    """The header of any ONNX model, without a look at its operators.  Raises :class:`ModelError`."""
    import onnx

    try:
        if path is not None:
            proto = onnx.load(str(path), load_external_data=False)
        else:
            proto = onnx.load_model_from_string(data or b"")
    except Exception as error:
        raise ModelError(f"not an ONNX model: {error}") from error
    initialized = {tensor.name for tensor in proto.graph.initializer}
    ports = [_port(info) for info in proto.graph.input]
    return ModelHeader(
        inputs=tuple(port for port in ports if port.name not in initialized),
        overridable=tuple(port for port in ports if port.name in initialized),
        outputs=tuple(_port(info) for info in proto.graph.output),
        metadata=ModelMetadata(
            proto.producer_name,
            proto.domain,
            proto.doc_string,
            proto.graph.name,
            proto.graph.doc_string,
            proto.model_version,
            {entry.key: entry.value for entry in proto.metadata_props},
        ),
        nodes=len(proto.graph.node),
        files={},
    )


def _port(info: Any) -> HeaderPort:
    if not info.type.HasField("tensor_type"):
        return HeaderPort(info.name, None, None)
    tensor = info.type.tensor_type
    dtype = from_onnx(tensor.elem_type).name if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return HeaderPort(info.name, dtype, None)
    dims = tuple(
        dim.dim_param or None if not dim.HasField("dim_value") else int(dim.dim_value) for dim in tensor.shape.dim
    )
    meanings = tuple(dim.denotation or None for dim in tensor.shape.dim)
    return HeaderPort(info.name, dtype, dims, meanings if any(meanings) else None)
