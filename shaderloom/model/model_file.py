"""The file of a model: a path, bytes, a ModelProto or an ONNXProgram of the caller."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from ..runtime.bundle.files import is_bundle
from ..runtime.memory.source_files import FileState
from ..runtime.plan.errors import InputError, MissingFileError, ModelError


class ModelFile(NamedTuple):
    """An ONNX model as an absolute path or as bytes; the other of the two is None."""

    path: Path | None
    data: bytes | None

    @property
    def content(self) -> Path | bytes:
        """The path or the bytes."""
        content = self.data if self.path is None else self.path
        assert content is not None, "one of the two is given"
        return content

    def digest(self) -> str:
        """Return the sha256 of the model's bytes."""
        if self.path is None:
            return hashlib.sha256(self.data or b"").hexdigest()
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def identify(self) -> dict[str, Any]:
        """Return the identity of the model for cache keys: the digest of bytes; path and state of a file.

        Raises :class:`ModelError` if the file cannot be read.
        """
        if self.path is None:
            return {"sha256": self.digest(), "folder": ""}
        try:
            state = FileState.of(os.stat(self.path))
        except OSError as error:
            raise ModelError(f"cannot read '{self.path}': {error.strerror or error}") from error
        return {"path": str(self.path), "size": state.size, "modified_ns": state.modified_ns, "inode": state.inode}


def locate(model: Any) -> ModelFile:
    """Return the file of a model; raise :class:`InputError` for what is none.

    A model is a path, bytes, a ``ModelProto``, or a ``torch.onnx.ONNXProgram``, which is serialised.
    """
    if isinstance(model, (bytes, bytearray, memoryview)):
        return ModelFile(None, bytes(model))
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        try:
            check_is_file(path)
            return ModelFile(path.absolute(), None)
        except ModelError:
            raise
        except OSError as error:
            raise ModelError(f"cannot read '{path}': {error.strerror or error}", hint="check the path") from None
    model = getattr(model, "model_proto", model)  # a torch.onnx.ONNXProgram
    if hasattr(model, "SerializeToString"):
        try:
            return ModelFile(None, model.SerializeToString())
        except Exception as error:  # protobuf raises EncodeError and ValueError, neither importable without it
            raise ModelError(f"the model cannot be serialised: {error}", hint="save it, pass the path") from error
    raise InputError(
        f"a model is a path, bytes, a ModelProto or an ONNXProgram, not {type(model).__name__}",
        hint="pass one of these",
    )


def check_is_file(path: Path) -> None:
    """Raise :class:`ModelError` if ``path`` cannot be an ONNX file: a :class:`MissingFileError` if there is none."""
    if not path.exists():
        raise MissingFileError(path)
    if is_bundle(path):
        raise ModelError(
            f"'{path}' is a folder or a zip, as shader bundles are, and not a file of a model",
            hint="name the ONNX file; shaderloom.load_bundle and the commands run, profile and inspect take bundles",
        )
    if not path.is_file():
        raise ModelError(f"'{path}' is not a file", hint="name an ONNX file")
