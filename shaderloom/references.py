"""What the tensors of a model should be: computed by another runtime, or read from a file.

A :class:`Reference` gives tensors by their ONNX names, also those inside the graph.  Names of nodes in subgraphs and
functions are not unique, so only tensors of the main graph can be asked for.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .model import check_is_file
from .runtime.errors import InputError, ModelError, UnsupportedError

Tensors = dict[str, np.ndarray]


class Reference(Protocol):
    """Where expected tensors come from; ``name`` is for people."""

    name: str

    def tensors(self, feeds: Mapping[str, np.ndarray], names: Collection[str]) -> Tensors:
        """Those of ``names`` that it knows, for these inputs."""
        ...

    def spread(self, feeds: Mapping[str, np.ndarray], names: Collection[str]) -> Tensors:
        """The same tensors by another correct way to compute them; {} if there is none.

        What the two ways differ by is what rounding alone does to the model on these inputs.
        """
        ...


class OnnxModel:
    """An ONNX file as a protocol buffer: its nodes by the tensors that they make, and copies with more outputs."""

    def __init__(self, path: Path) -> None:
        import onnx

        self.path = path
        check_is_file(path)
        try:
            self.proto: Any = onnx.load(str(path), load_external_data=False)
        except OSError as error:
            raise ModelError(f"cannot read '{path}': {error.strerror or error}", hint="check the path") from error
        except Exception as error:  # protobuf's DecodeError
            raise ModelError(f"'{path}' is not an ONNX file, or a damaged one") from error

    @cached_property
    def producers(self) -> dict[str, int]:
        """Tensor -> index of the node of the main graph that makes it."""
        return {name: index for index, node in enumerate(self.proto.graph.node) for name in node.output if name}

    @property
    def outputs(self) -> list[str]:
        return [output.name for output in self.proto.graph.output]

    def node_text(self, index: int) -> str:
        """A node of the main graph in the form that errors and plans use."""
        from .runtime.errors import Origin

        node = self.proto.graph.node[index]
        return str(Origin("main", index, node.op_type, node.name))

    def with_outputs(self, names: Collection[str]) -> Any:
        """A copy with these tensors as outputs, nothing else; external data stays where it is."""
        import onnx

        copy = onnx.ModelProto()
        copy.CopyFrom(self.proto)
        declared = {output.name: output for output in self.proto.graph.output}
        del copy.graph.output[:]
        copy.graph.output.extend(declared.get(name) or onnx.ValueInfoProto(name=name) for name in names)
        return copy


class OnnxRuntimeReference:
    """onnxruntime on the CPU, without graph optimisations; with all of them for :meth:`spread`."""

    name = "onnxruntime"

    def __init__(self, model: OnnxModel) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise InputError(
                "onnxruntime is not installed", hint="pip install onnxruntime, or use --against reference"
            ) from error
        self._runtime = onnxruntime
        self._model = model

    def tensors(self, feeds: Mapping[str, np.ndarray], names: Collection[str]) -> Tensors:
        return self._run(feeds, names, optimised=False)

    def spread(self, feeds: Mapping[str, np.ndarray], names: Collection[str]) -> Tensors:
        return self._run(feeds, names, optimised=True)

    def _run(self, feeds: Mapping[str, np.ndarray], names: Collection[str], *, optimised: bool) -> Tensors:
        known = [name for name in names if name in self._model.producers]
        if not known:
            return {}
        level = self._runtime.GraphOptimizationLevel
        options = self._runtime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(self._model.path.absolute().parent)
        )
        data = self._model.with_outputs(known).SerializeToString()
        try:
            session = self._runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            return dict(zip(known, session.run(None, dict(feeds))))
        except Exception as error:  # onnxruntime's errors have no common base
            raise UnsupportedError(
                f"onnxruntime does not run the model: {error}", hint="use --against reference or a .npz file"
            ) from error


class EvaluatorReference:
    """onnx's reference evaluator: slow, and close to the text of the standard."""

    name = "onnx reference"

    def __init__(self, model: OnnxModel) -> None:
        self._model = model

    def tensors(self, feeds: Mapping[str, np.ndarray], names: Collection[str]) -> Tensors:
        import onnx
        from onnx.reference import ReferenceEvaluator

        known = [name for name in names if name in self._model.producers]
        if not known:
            return {}
        proto = self._model.with_outputs(known)
        onnx.load_external_data_for_model(proto, str(self._model.path.absolute().parent))
        try:
            results = ReferenceEvaluator(proto).run(None, dict(feeds))
        except Exception as error:  # whatever an operator of the evaluator raises
            raise UnsupportedError(
                f"onnx's reference evaluator does not run the model: {type(error).__name__}: {error}",
                hint="use --against onnxruntime or a .npz file",
            ) from error
        return {name: np.asarray(result) for name, result in zip(known, results)}

    def spread(self, feeds: Mapping[str, np.ndarray], names: Collection[str]) -> Tensors:
        return {}


class FileReference:
    """Tensors of a ``.npz`` file by their ONNX names."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        try:
            with np.load(path, allow_pickle=False) as archive:
                self.arrays = {name: archive[name] for name in archive.files}
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror or error}", hint="check the path") from error
        except (ValueError, zipfile.BadZipFile, AttributeError) as error:
            raise InputError(f"cannot read '{path}': {error}", hint="it must be a .npz file") from error

    def tensors(self, feeds: Mapping[str, np.ndarray], names: Collection[str]) -> Tensors:
        return {name: self.arrays[name] for name in names if name in self.arrays}

    def spread(self, feeds: Mapping[str, np.ndarray], names: Collection[str]) -> Tensors:
        return {}


def open_reference(against: str, model: OnnxModel) -> Reference:
    """``onnxruntime``, ``reference``, or the path of a ``.npz`` file."""
    if against == "onnxruntime":
        return OnnxRuntimeReference(model)
    if against == "reference":
        return EvaluatorReference(model)
    if against.endswith(".npz"):
        return FileReference(Path(against))
    raise InputError(f"cannot check against '{against}'", hint="onnxruntime, reference, or the path of a .npz file")
