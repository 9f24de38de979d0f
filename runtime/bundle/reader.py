"""A bundle, open for reading: manifest, plans, weights and samples, each checked before it is used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..memory import safetensors
from ..plan.dtypes import BY_NAME
from ..plan.errors import BundleError, InputError, InternalError
from ..plan.plan import Plan, SourceRef
from ..plan.record import record
from . import plan as bundle_plan
from .files import open_files
from .format import DIGEST, asset_file, model_file, plan_file, shader_file
from .integrity import CheckedFiles, read_manifest
from .manifest import Manifest, SampleRecord
from .plan_relations import check_plan
from .signing import Key, read_public_key
from .structure import read

#: Told what is being checked, bytes done and bytes in all
Progress = Callable[[str, int, int], None]


@record(slots=False)
class Sample:
    """Inputs, and the outputs that a run should give."""

    record: SampleRecord
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


class Bundle:
    """The bundle at ``path``: a folder or a zip.

    Opening checks the manifest, and that exactly the files are there that it lists; their bytes are checked when they
    are read.  Raises :class:`BundleError`, which names the file, for anything wrong, and :class:`InputError` for what
    is no path.  With a ``verify_key`` the bundle must be signed with its other half.  ``model`` names one of
    :attr:`models`, whose manifest, plans and weights are meant in place of the bundle's own.
    """

    def __init__(
        self, path: str | os.PathLike[str], verify_key: Key | None = None, *, model: str | None = None
    ) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise InputError(f"a bundle is a path, not {type(path).__name__}")
        self.path = Path(path)
        key = None if verify_key is None else read_public_key(verify_key)
        self._files = open_files(self.path)
        self._own = read_manifest(self._files, key)
        #: the digest of the manifest, which lists every file with its hashes: bundles that are alike have the same one
        self.identity = bytes(self._files.view(DIGEST)[:100]).decode("ascii", "replace")
        self._checked = CheckedFiles(self._files, self._own.files)
        self.manifest: Manifest = self._own if model is None else self._further(model)

    def _further(self, model: str) -> Manifest:
        """Return the manifest of a further model, whose files must be the bundle's."""
        name = model_file(model)
        if name not in self._own.files:
            raise InputError(f"the bundle has no model '{model}'", hint=f"it has {', '.join(self.models) or 'none'}")
        try:
            return Manifest.from_bytes(self._checked.read(name), self._own)
        except ValueError as error:
            raise BundleError(f"'{name}': {error}") from None

    @property
    def models(self) -> list[str]:
        """The names of the bundle's further models."""
        begin, end = model_file("\n").split("\n")
        names = (name for name in self._own.files if name.startswith(begin) and name.endswith(end))
        return [name.removeprefix(begin).removesuffix(end) for name in names]

    def has_asset(self, name: str) -> bool:
        """Return whether the bundle has a file of this name for whoever uses it."""
        return asset_file(name) in self._own.files

    def asset(self, name: str, most: int) -> bytes:
        """Return a file for whoever uses the bundle; raise :class:`BundleError` for one of more than ``most`` bytes."""
        file = asset_file(name)
        if self.has_asset(name) and self._own.files[file].size > most:
            raise BundleError(f"'{file}' has more than {most:,} bytes", hint="check what it is")
        return self._checked.read(file)

    @property
    def file_count(self) -> int:
        """The number of files, those that the manifest does not list included."""
        return len(self._files.sizes)

    def plan(self, key: str) -> Plan:
        """Return one of the manifest's plans with its shader texts; its sources are ranges of the weights' files."""
        return self._plan(key, self.manifest)

    def _plan(self, key: str, manifest: Manifest) -> Plan:
        name = plan_file(key)
        content = self._checked.read(name)
        try:
            root = read(content, "plan")
            check_plan(root, manifest.content, key)
            return bundle_plan.decode(root, self._shader, manifest.weights)
        except ValueError as error:
            raise BundleError(f"'{name}': {error}") from None

    def _shader(self, key: str) -> str:
        name = shader_file(key)
        try:
            return self._checked.read(name).decode()
        except UnicodeDecodeError:
            raise BundleError(f"'{name}' is not a text") from None

    def read_source(self, source: SourceRef) -> memoryview:
        """Return the bytes of a weight's part: a view of the mapped file, its chunks checked."""
        if source.path is None:
            raise InternalError("a weight of a bundle has no file")
        return self._checked.view(source.path, source.offset, source.length)

    def sample(self, record: SampleRecord) -> Sample:
        """Return one of the manifest's samples."""
        content = memoryview(self._checked.read(record.file))
        tensors: dict[str, dict[str, np.ndarray]] = {"input": {}, "output": {}}
        try:
            for name, entry in safetensors.parse(content).items():
                kind, _, port = name.partition(":")
                if kind not in tensors:
                    raise ValueError(f"'{name}' is neither an input nor an output")
                data = content[entry.begin : entry.end]
                tensors[kind][port] = np.frombuffer(data, _numpy_dtype(entry.dtype)).reshape(entry.shape)
        except ValueError as error:
            raise BundleError(f"'{record.file}': {error}") from None
        return Sample(record, tensors["input"], tensors["output"])

    def check_all(self, progress: Progress | None = None) -> None:
        """Check every byte of every file, and that all plans and samples can be read, those of further models too."""
        self._checked.check_all(progress or (lambda what, done, total: None))
        for key in self.manifest.plan_keys:
            self.plan(key)
        for sample in self.manifest.samples:
            self.sample(sample)
        for further in map(self._further, self.models):
            for key in further.plan_keys:
                self._plan(key, further)

    def close(self) -> None:
        """Drop the mappings; views of them stay valid."""
        self._files.close()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _numpy_dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes  # only models with this type need it

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(BY_NAME[name].numpy).newbyteorder("<")
