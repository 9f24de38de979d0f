"""Writing a bundle: into a folder beside its final place, which takes that place once everything is there.

Weights and shaders are written once however many plans name them.  Files of weights are filled in the order in which
weights are added, so equal input gives equal bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..memory import safetensors
from ..plan.batch_ports import BatchPorts
from ..plan.dtypes import UINT8, from_numpy
from ..plan.errors import InputError, LimitError, unwritable
from ..plan.plan import Plan
from . import plan as bundle_plan
from .files import is_bundle
from .format import (
    CHUNK,
    DIGEST,
    MANIFEST,
    SIGNATURE,
    WEIGHTS_FILE,
    asset_file,
    is_file_name,
    model_file,
    plan_file,
    sample_file,
    shader_file,
    weights_file,
)
from .integrity import digest_line
from .manifest import FileRecord, Manifest, Part, PlanRecord, SampleRecord
from .manifest_relations import check_manifest
from .plan_relations import check_plan
from .program import ProgramRecord
from .signing import sign
from .structure import Refusal, read
from .zip import write_zip

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: room in a file of weights for its header, and what one entry may take of it
_HEADER_ROOM = 1 << 20
_ENTRY_BYTES = 256


class BundleWriter:
    """Collects a bundle; use it in ``with``: without :meth:`finish` nothing is left.

    ``as_zip`` packs one file.  ``weights_file_bytes`` bounds a file of weights (tests use small ones).  ``sign_key``
    signs the bundle.  ``progress`` gets the file that is written, bytes done and bytes in all.
    """

    def __init__(
        self,
        target: Path,
        *,
        as_zip: bool = False,
        weights_file_bytes: int = WEIGHTS_FILE,
        sign_key: Ed25519PrivateKey | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._target = target
        self._as_zip = as_zip
        self._sign_key = sign_key
        self._progress = progress or (lambda what, done, total: None)
        self._data_room = weights_file_bytes - min(_HEADER_ROOM, weights_file_bytes // 2)
        self._files: dict[str, FileRecord] = {}
        self._plans: list[PlanRecord] = []
        self._programs: list[ProgramRecord] = []
        self._samples: list[SampleRecord] = []
        self._weights: dict[str, list[tuple[int, int]]] = {}  #: key -> (file number, position among its parts)
        self._of_model: dict[str, None] = {}  #: the keys of the weights that the model has to which plans are added
        self._places: dict[tuple[int, int], Part] = {}  #: (file number, position) -> where that part is
        self._number = 0  #: of the file of weights that is being filled
        self._open: list[tuple[str, memoryview]] = []  #: its entries
        self._open_bytes = 0
        _check_target(target, as_zip)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        except OSError as error:
            raise unwritable(target, error) from None

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- content -------------------------------------------------------------------------------------------------

    def add_weight(self, data: memoryview) -> str:
        """Add the bytes of a weight, a multiple of 16, and return its key; equal bytes are stored once.

        ``data`` must stay as it is until the bundle is finished.
        """
        view = data.cast("B")
        if len(view) % 16 or not len(view):
            raise ValueError("the bytes of a weight are whole blocks of 16")
        key = hashlib.sha256(view).hexdigest()
        self._of_model[key] = None
        if key in self._weights:
            return key
        self._weights[key] = []
        room = self._data_room // 16 * 16
        pieces = [view[start : start + room] for start in range(0, len(view), room)]
        for number, piece in enumerate(pieces):
            if self._open_bytes + len(piece) > room or len(self._open) >= _HEADER_ROOM // _ENTRY_BYTES:
                self._flush()
            self._weights[key].append((self._number, len(self._open)))
            self._open.append((key if len(pieces) == 1 else f"{key}.{number}", piece))
            self._open_bytes += len(piece)
        return key

    def add_plan(
        self,
        plan: Plan,
        shapes: Mapping[str, Sequence[int | str]],
        software: Plan | None = None,
        rows: BatchPorts | None = None,
    ) -> None:
        """Write a plan whose weights were added, and its shaders.

        ``software`` is the same for adapters on the CPU; ``rows`` are the axes of rows that are proven independent.
        """
        self._write_plan(plan)
        if software is not None:
            self._write_plan(software)
        sizes = {name: tuple(dims) for name, dims in shapes.items()}
        key = None if software is None else software.key
        self._plans.append(PlanRecord(plan.key, plan_file(plan.key), sizes, key, rows))

    def add_program(self, program: ProgramRecord, plans: Mapping[str, Plan]) -> None:
        """Write the stages of a program, whose ``plans`` by key have weights that were added, and their shaders."""
        for stage in program.stages:
            for key in (stage.key, stage.software):
                if key is not None:
                    self._write_plan(plans[key])
        self._programs.append(program)

    def _write_plan(self, plan: Plan) -> None:
        if plan_file(plan.key) in self._files:
            return
        for kernel in plan.kernels:
            if shader_file(kernel.key) not in self._files:
                self._write(shader_file(kernel.key), [kernel.wgsl.encode()])
        self._write(plan_file(plan.key), [bundle_plan.encode(plan)])

    def add_sample(
        self, key: str, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], tolerance: float
    ) -> None:
        """Write what the plan with this key gives for ``inputs``."""
        tensors = [(f"input:{name}", array) for name, array in inputs.items()]
        tensors += [(f"output:{name}", array) for name, array in outputs.items()]
        little = []
        for name, array in tensors:
            dtype = from_numpy(array.dtype)
            if dtype.name not in safetensors.DTYPE_NAMES.values():  # codes, and integers narrower than a byte
                array, dtype = array.view(np.uint8), UINT8
            little.append((name, array.astype(array.dtype.newbyteorder("<"), order="C", copy=False), dtype.name))
        head = safetensors.header((name, dtype, array.shape, array.nbytes) for name, array, dtype in little)
        self._write(sample_file(key), [head, *(array.tobytes() for _, array, _ in little)])
        self._samples.append(SampleRecord(key, sample_file(key), tolerance))

    def add_asset(self, name: str, content: bytes) -> None:
        """Write a file for whoever uses the bundle, whose name is one part of a file's."""
        if "/" in name or not is_file_name(asset_file(name)):
            raise InputError(
                f"no file of a bundle may be called '{name}'", hint="use lower-case letters, digits and .-_"
            )
        self._write(asset_file(name), [content])

    def finish_model(self, name: str, **facts: Any) -> Manifest:
        """Make what was added a further model of the bundle; what is added from now on is another one's.

        ``facts`` and errors are those of :meth:`finish`.
        """
        manifest, content = self._manifest(model_file(name), facts)
        self._write(model_file(name), [content])
        self._plans, self._programs, self._samples, self._of_model = [], [], [], {}
        return manifest

    def finish(self, **facts: Any) -> Manifest:
        """Write the manifest and move the bundle to its place.  ``facts`` are the other fields of :class:`Manifest`.

        Raises :class:`LimitError` for what no reader would take.
        """
        manifest, content = self._manifest(MANIFEST, facts)
        self._write(MANIFEST, [content], listed=False)
        self._write(DIGEST, [digest_line(content)], listed=False)
        if self._sign_key is not None:
            self._write(SIGNATURE, [sign(digest_line(content), self._sign_key)], listed=False)
        try:
            self._move()
        except OSError as error:
            raise unwritable(self._target, error) from None
        return manifest

    def _manifest(self, name: str, facts: Mapping[str, Any]) -> tuple[Manifest, bytes]:
        """Return the manifest of what was added, and the content of its file, which readers take."""
        self._flush()
        manifest = Manifest(
            plans=tuple(self._plans),
            programs=tuple(self._programs),
            samples=tuple(self._samples),
            weights={key: tuple(self._places[place] for place in self._weights[key]) for key in self._of_model},
            files=dict(self._files),
            **facts,
        )
        content = manifest.to_bytes()
        self._check(name, content, manifest.plan_keys)
        return manifest, content

    def _check(self, name: str, content: bytes, plan_keys: Sequence[str]) -> None:
        """Check a manifest and the plans as readers do."""
        try:
            manifest = read(content, "manifest")
            check_manifest(manifest)
            for key in plan_keys:
                name = plan_file(key)
                check_plan(read((self._folder / name).read_bytes(), "plan"), manifest, key)
        except Refusal as refusal:
            raise LimitError(
                f"the model does not fit the format of bundles: '{name}': {refusal}", hint="use a session of the model"
            ) from None

    # -- files ---------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write the file of weights that is being filled, and begin the next."""
        if not self._open:
            return
        name = weights_file(self._number + 1)
        head = safetensors.header((entry, "uint8", (len(data),), len(data)) for entry, data in self._open)
        self._write(name, [head, *(data for _, data in self._open)])
        position = len(head)
        for index, (_, data) in enumerate(self._open):
            self._places[self._number, index] = Part(name, position, len(data))
            position += len(data)
        self._open, self._open_bytes = [], 0
        self._number += 1

    def _write(self, name: str, pieces: Sequence[bytes | memoryview], *, listed: bool = True) -> None:
        hasher = _ChunkHasher()
        total = sum(map(len, pieces))
        path = self._folder / name
        try:
            path.parent.mkdir(exist_ok=True)
            with path.open("xb") as file:
                for piece in pieces:
                    file.write(piece)
                    hasher.update(memoryview(piece))
                    self._progress(f"writing {name}", hasher.size, total)
        except OSError as error:
            raise unwritable(self._target, error) from None
        if listed:
            self._files[name] = FileRecord(hasher.size, hasher.finish())

    def _move(self) -> None:
        """Replace the target, which is a bundle or does not exist."""
        if self._as_zip:
            packed = self._folder / "packed.zip"
            with packed.open("xb") as file:
                signature = [] if self._sign_key is None else [SIGNATURE]
                write_zip(file, self._folder, [*self._files, MANIFEST, DIGEST, *signature])
            os.replace(packed, self._target)
            return
        self._folder.chmod(0o755)  # made by mkdtemp for the user alone
        old = None
        if self._target.exists():
            old = Path(tempfile.mkdtemp(dir=self._target.parent, prefix=f".{self._target.name}."))
            os.replace(self._target, old / "old")
        os.replace(self._folder, self._target)
        if old is not None:
            with contextlib.suppress(OSError):
                shutil.rmtree(old)


class _ChunkHasher:
    """Hashes of the chunks of a file that is written piece by piece."""

    def __init__(self) -> None:
        self.size = 0
        self._chunks: list[str] = []
        self._current = hashlib.sha256()

    def update(self, piece: memoryview) -> None:
        while piece:
            room = CHUNK - self.size % CHUNK
            self._current.update(piece[:room])
            self.size += len(piece[:room])
            piece = piece[room:]
            if self.size % CHUNK == 0:
                self._chunks.append(self._current.hexdigest())
                self._current = hashlib.sha256()

    def finish(self) -> tuple[str, ...]:
        return tuple(self._chunks if self.size % CHUNK == 0 else [*self._chunks, self._current.hexdigest()])


def _check_target(target: Path, as_zip: bool) -> None:
    """Refuse to replace anything but a bundle of the same kind."""
    try:
        if target.is_symlink():
            raise InputError(f"'{target}' is a link", hint="name the place that it leads to")
        if not target.exists():
            return
    except OSError as error:
        raise unwritable(target, error) from None
    if as_zip and target.is_file() and is_bundle(target):
        return
    if not as_zip and target.is_dir() and (target / MANIFEST).is_file():
        return
    raise InputError(f"'{target}' is there already and no bundle of this kind", hint="choose another name")
