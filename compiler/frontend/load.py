"""Reading a model: a path, bytes or a ModelProto becomes an :class:`ImportedModel`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from google.protobuf.message import DecodeError, EncodeError

from ...runtime.plan.caps import DEFAULT_NODES
from ...runtime.plan.errors import InputError, MissingFileError, ModelError
from ...runtime.plan.model_metadata import ModelMetadata
from ...runtime.plan.tensor_file import StrippedModel, strip_payloads
from ..gc_pause import paused_collection
from ..ir.constants import MappedFile
from .checked_indices import with_index_ranges
from .functions import inline_functions
from .graphs import GraphImporter
from .messages import ModelProto
from .model import ImportedModel
from .schemas import read_opsets
from .standard_functions import MAX_DEPTH, define_standard_functions
from .tensors import LoadData, TensorReader
from .utf8 import check_texts

ModelLike = str | os.PathLike[str] | bytes | ModelProto


def load_model(
    model: ModelLike,
    load_data: LoadData | None = None,
    *,
    keep_refused: bool = False,
    max_nodes: int = DEFAULT_NODES,
    logits: str = "all",
    check_indices: bool = False,
) -> ImportedModel:
    """Import a model.  Weights are not read: they stay in the file (mapped) or in the bytes given.

    ``load_data`` reads external data in place of the file system.  With ``keep_refused`` nodes that the compiler has no
    means for stay in the model, each with its refusal.  ``logits`` and ``check_indices`` are those of
    :class:`~.options.CompileOptions`.

    Raises :class:`ModelError` when the file is no valid ONNX model, :class:`UnsupportedError` when it uses what is not
    supported, both with the node or tensor concerned; :class:`LimitError` for more than ``max_nodes`` nodes.
    """
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        try:
            if not path.exists():
                raise MissingFileError(path)
            if not path.is_file():
                raise ModelError(f"'{path}' is not a file", hint="check the path")
            file = MappedFile.open(path.absolute())
        except ModelError:
            raise
        except OSError as error:
            raise ModelError(f"cannot read '{path}': {error.strerror or error}", hint="check the path") from None
        stripped = strip_payloads(file.view)
        tensors = TensorReader(stripped.ranges, file=file, load=load_data)
        return _import(stripped, tensors, file.path, None, keep_refused, max_nodes, logits, check_indices)
    if isinstance(model, ModelProto):
        try:
            model = model.SerializeToString()
        except (EncodeError, ValueError) as error:
            raise ModelError(f"the model cannot be serialised: {error}", hint="save it, pass the path") from None
    if not isinstance(model, (bytes, bytearray, memoryview)):
        raise InputError(
            f"a model is a path, bytes or a ModelProto, not {type(model).__name__}", hint="pass one of these"
        )
    data = bytes(model)
    stripped = strip_payloads(data)
    tensors = TensorReader(stripped.ranges, data=data, load=load_data)
    return _import(stripped, tensors, None, data, keep_refused, max_nodes, logits, check_indices)


@paused_collection()
def _import(
    stripped: StrippedModel,
    tensors: TensorReader,
    path: Path | None,
    data: bytes | None,
    keep_refused: bool,
    max_nodes: int,
    logits: str,
    check_indices: bool,
) -> ImportedModel:
    try:
        proto = ModelProto.FromString(stripped.message)
    except (DecodeError, ValueError):
        raise ModelError("not an ONNX file, or a damaged one: it is no protobuf message of a model") from None
    check_texts(proto)
    if not proto.HasField("graph"):
        raise ModelError("not an ONNX model: there is no graph in it")
    if not proto.opset_import:
        raise ModelError("the model does not import any opset")
    opsets = read_opsets(proto.opset_import)
    proto = without_functions(proto, opsets, max_nodes)
    if logits != "all":
        from .logits_form import apply_logits  # imports all of onnx

        apply_logits(proto, logits)
    graph = GraphImporter(proto.graph, "main", opsets, tensors, keep_refused=keep_refused).run()
    for port in graph.inputs:
        if port.dtype is None and port.refusal is None:
            raise ModelError("the element type of the input is not declared", tensor=port.name)
    graph, checked, unchecked = with_index_ranges(graph) if check_indices else (graph, (), ())
    initialised = {*graph.constants, *graph.foreign}
    return ImportedModel(
        graph=graph,
        inputs=tuple(port for port in graph.inputs if port.name not in initialised),
        overridable=tuple(port for port in graph.inputs if port.name in initialised),
        outputs=graph.outputs,
        metadata=ModelMetadata.of(proto),
        opsets=opsets,
        path=path,
        data=data,
        files=tensors.files,
        proto=proto,
        restore=tensors.restore,
        checked=checked,
        unchecked=unchecked,
    )


def without_functions(proto: ModelProto, opsets: Mapping[str, int], max_nodes: int = DEFAULT_NODES) -> ModelProto:
    """Inline function bodies until only operators of the registry remain, as far as those bodies allow."""
    proto = inline_functions(proto, max_nodes)
    for _ in range(MAX_DEPTH):
        if not define_standard_functions(proto, opsets):
            break
        proto = inline_functions(proto, max_nodes)
    return proto
