"""Expected tensors of a model: computed by another runtime, or read from a file.

A :class:`Reference` provides tensors by their ONNX names, also those inside the graph, and those of branches and of
single iterations of loops by their :class:`~.graph_instance.GraphInstance`.
"""

from __future__ import annotations

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..api.real_onnxruntime import real_onnxruntime
from ..compiler.frontend.proto_builder import nodes_within
from ..runtime.plan.errors import InputError, UnsupportedError
from .graph_instance import MAIN_GRAPH, GraphInstance
from .onnx_model import OnnxModel

if TYPE_CHECKING:
    from .nested_values import NestedValues

Tensors = dict[str, np.ndarray]
Feeds = Mapping[str, np.ndarray]


class Reference(Protocol):
    """A source of expected tensors; ``name`` is for people."""

    name: str

    def tensors(self, feeds: Feeds, names: Collection[str], instance: GraphInstance = MAIN_GRAPH) -> Tensors:
        """Return those of the tensors ``names`` that the reference can provide for these inputs."""
        ...

    def spread(self, feeds: Feeds, names: Collection[str], instance: GraphInstance = MAIN_GRAPH) -> Tensors:
        """Return the tensors ``names`` from another correct way to compute them; {} if there is none.

        The difference between the two shows the effect of rounding alone on the model for these inputs.
        """
        ...

    def reaches(self, feeds: Feeds, instance: GraphInstance) -> bool:
        """Return whether the reference runs a nested graph, and a loop up to that iteration."""
        ...


class _Running(ABC):
    """A reference that runs the model, and parts of it."""

    name = ""

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self._nested: dict[bool, tuple[Feeds, NestedValues]] = {}

    def reaches(self, feeds: Feeds, instance: GraphInstance) -> bool:
        return instance == MAIN_GRAPH or self._nested_tensors(feeds, instance, optimised=False) is not None

    def _nested_tensors(self, feeds: Feeds, instance: GraphInstance, optimised: bool) -> dict[str, Any] | None:
        try:
            return self._inside(feeds, optimised).tensors(instance)
        except KeyError as error:  # a captured value that the reference does not provide
            raise UnsupportedError(f"{self.name} has no value of {error}, which the graph {instance} reads") from error

    @abstractmethod
    def _open(self, proto: Any, optimised: bool) -> Callable[[Mapping[str, Any]], list[Any]]:
        """Load a model; return a function from feeds to outputs in order.  Loading and running raise
        :class:`UnsupportedError`.
        """

    def _tensors(self, feeds: Feeds, names: Collection[str], instance: GraphInstance, optimised: bool) -> Tensors:
        if instance == MAIN_GRAPH:
            tensors = self._main(feeds, names, optimised)
        else:
            tensors = self._nested_tensors(feeds, instance, optimised) or {}
        return {name: tensors[name] for name in names if isinstance(tensors.get(name), np.ndarray)}

    def _main(self, feeds: Feeds, names: Collection[str], optimised: bool) -> dict[str, Any]:
        produced = [name for name in names if name in self._model.producers]
        if not produced:
            return {}
        run = self._open(self._model.with_outputs(produced), optimised)
        read = {port.name for port in self._model.proto.graph.input}
        return dict(zip(produced, run({name: array for name, array in feeds.items() if name in read})))

    def _inside(self, feeds: Feeds, optimised: bool) -> NestedValues:
        from .nested_values import NestedValues

        cached = self._nested.get(optimised)
        if cached is None or cached[0] is not feeds:
            nested = NestedValues(
                self._model,
                feeds,
                lambda names: self._main(feeds, names, optimised),
                lambda proto: self._open(proto, optimised),
            )
            cached = self._nested[optimised] = feeds, nested
        return cached[1]


class OnnxRuntimeReference(_Running):
    """onnxruntime on the CPU, without graph optimisations; with all of them for :meth:`spread`.

    Activations are floats, also where nodes allow to round them to 8 bits.  Where kernels do, ``rounds_activations``,
    :meth:`spread` rounds them, too.
    """

    name = "onnxruntime"

    def __init__(self, model: OnnxModel, *, rounds_activations: bool = False) -> None:
        super().__init__(model)
        self._rounds_activations = rounds_activations
        try:
            self._runtime = real_onnxruntime()
        except ImportError as error:
            raise InputError(
                "onnxruntime is not installed", hint="pip install 'shaderloom[cpu]', or use --against reference"
            ) from error

    def tensors(self, feeds: Feeds, names: Collection[str], instance: GraphInstance = MAIN_GRAPH) -> Tensors:
        return self._tensors(feeds, names, instance, optimised=False)

    def spread(self, feeds: Feeds, names: Collection[str], instance: GraphInstance = MAIN_GRAPH) -> Tensors:
        return self._tensors(feeds, names, instance, optimised=True)

    def _open(self, proto: Any, optimised: bool) -> Callable[[Mapping[str, Any]], list[Any]]:
        if not (optimised and self._rounds_activations):
            for node in nodes_within(proto.graph):
                for attribute in node.attribute:
                    if node.op_type == "MatMulNBits" and attribute.name == "accuracy_level":
                        attribute.i = 0
        level = self._runtime.C.GraphOptimizationLevel
        options = self._runtime.C.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(self._model.path.absolute().parent)
        )
        try:
            session = self._runtime.InferenceSession(
                proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors have no common base
            raise self._refusal(error) from error

        def run(feeds: Mapping[str, Any]) -> list[Any]:
            try:
                return session.run(None, dict(feeds))
            except Exception as error:
                raise self._refusal(error) from error

        return run

    @staticmethod
    def _refusal(error: Exception) -> UnsupportedError:
        return UnsupportedError(
            f"onnxruntime does not run the model: {error}", hint="use --against reference or a .npz file"
        )


class EvaluatorReference(_Running):
    """onnx's reference evaluator: slow, and close to the text of the standard.

    It computes 16-bit floats in float32 and rounds them where the file names a tensor, or without ``rounds`` nowhere.
    """

    name = "onnx reference"

    def __init__(self, model: OnnxModel, *, rounds: bool = True) -> None:
        super().__init__(model)
        self._rounds = rounds

    def tensors(self, feeds: Feeds, names: Collection[str], instance: GraphInstance = MAIN_GRAPH) -> Tensors:
        return self._tensors(feeds, names, instance, optimised=False)

    def spread(self, feeds: Feeds, names: Collection[str], instance: GraphInstance = MAIN_GRAPH) -> Tensors:
        return {}

    def run(self, proto: Any, feeds: Feeds) -> dict[str, Any]:
        """Run a model built from nodes of this one; return outputs by name.  Raises :class:`UnsupportedError`."""
        return dict(zip((port.name for port in proto.graph.output), self._open(proto, optimised=False)(feeds)))

    def _open(self, proto: Any, optimised: bool) -> Callable[[Mapping[str, Any]], list[Any]]:
        import onnx

        from .half_evaluator import HalfEvaluator

        onnx.load_external_data_for_model(proto, str(self._model.path.absolute().parent))
        try:
            evaluator = HalfEvaluator(proto, rounds=self._rounds)
        except Exception as error:  # whatever an operator of the evaluator raises
            raise self._refusal(error) from error

        def run(feeds: Mapping[str, Any]) -> list[Any]:
            try:
                with np.errstate(all="ignore"):
                    results = evaluator.run(feeds)
            except Exception as error:
                raise self._refusal(error) from error
            return [np.asarray(result) if np.isscalar(result) else result for result in results]

        return run

    @staticmethod
    def _refusal(error: Exception) -> UnsupportedError:
        return UnsupportedError(
            f"onnx's reference evaluator does not run the model: {type(error).__name__}: {error}",
            hint="use --against onnxruntime or a .npz file",
        )


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

    def tensors(self, feeds: Feeds, names: Collection[str], instance: GraphInstance = MAIN_GRAPH) -> Tensors:
        return {name: self.arrays[name] for name in names if instance == MAIN_GRAPH and name in self.arrays}

    def reaches(self, feeds: Feeds, instance: GraphInstance) -> bool:
        return instance == MAIN_GRAPH

    def spread(self, feeds: Feeds, names: Collection[str], instance: GraphInstance = MAIN_GRAPH) -> Tensors:
        return {}


def open_reference(against: str, model: OnnxModel, *, rounds_activations: bool = False) -> Reference:
    """Open a reference: ``onnxruntime``, ``reference``, or the path of a ``.npz`` file.

    ``rounds_activations``: kernels may round them to 8 bits where the model allows it.  Raises :class:`InputError`.
    """
    if against == "onnxruntime":
        return OnnxRuntimeReference(model, rounds_activations=rounds_activations)
    if against == "reference":
        return EvaluatorReference(model)
    if against.endswith(".npz"):
        return FileReference(Path(against))
    raise InputError(f"cannot check against '{against}'", hint="onnxruntime, reference, or the path of a .npz file")
