"""Where rows come from: arrays of numpy, tables of Parquet and Arrow, folders of pictures."""

from __future__ import annotations

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.plan.errors import InputError
from .columns import RowInput, parse_columns
from .pictures import SUFFIXES, PictureForm, list_pictures

#: Rows that are decoded at once
BLOCK = 256

Feeds = dict[str, np.ndarray]
#: A row: what of it the result has besides outputs, and its inputs or why there are none
Row = tuple[dict[str, Any], Feeds | InputError]


class RowSource(ABC):
    """Files with a number of rows.  ``identity`` tells whether they are those of an earlier run."""

    def __init__(self, path: Path, inputs: Mapping[str, RowInput]) -> None:
        self.path, self.inputs = path, inputs

    @property
    def identity(self) -> list[Any]:
        state = self.path.stat()
        return [str(self.path), state.st_size, state.st_mtime_ns, len(self)]

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> Iterator[Row]:
        """Yield rows ``start`` to ``stop``."""


def guarded(make: Callable[[], Feeds]) -> Feeds | InputError:
    """Return the inputs of a row, or the error that says why there are none."""
    try:
        return make()
    except InputError as error:
        return error


def feeds_of(blocks: Mapping[str, np.ndarray | None], offset: int, make: Callable[[], Feeds]) -> Feeds | InputError:
    """Return the inputs of a row of blocks that :meth:`RowInput.arrays` has made; by ``make`` if it lacks one."""
    feeds = {name: block[offset : offset + 1] for name, block in blocks.items() if block is not None}
    return feeds if len(feeds) == len(blocks) else guarded(make)


class ArraySource(RowSource):
    """A .npy file, or the arrays of a .npz file; the first axis is rows."""

    def __init__(self, path: Path, inputs: Mapping[str, RowInput], columns: Mapping[str, str]) -> None:
        super().__init__(path, inputs)
        self._arrays = _mapped(path)
        self._columns = parse_columns(columns, list(self._arrays), inputs)
        counts = {column: len(self._arrays[column]) for column in self._columns.values()}
        if len(set(counts.values())) > 1:
            raise InputError(f"arrays of '{path}' have different numbers of rows: {counts}")
        self._count = next(iter(counts.values()), 0)

    def __len__(self) -> int:
        return self._count

    def rows(self, start: int, stop: int) -> Iterator[Row]:
        file, arrays = str(self.path), {name: self._arrays[column] for name, column in self._columns.items()}
        for first in range(start, stop, BLOCK):
            count = min(BLOCK, stop - first)
            blocks = {name: port.arrays(arrays[name][first : first + count]) for name, port in self.inputs.items()}
            for offset in range(count):
                row = first + offset
                yield {"file": file, "row": row}, feeds_of(blocks, offset, partial(self._feeds, arrays, row))

    def _feeds(self, arrays: Mapping[str, np.ndarray], row: int) -> Feeds:
        return {
            name: port.array(arrays[name][row], f"row {row} of '{self.path}'") for name, port in self.inputs.items()
        }


def _mapped(path: Path) -> dict[str, np.ndarray]:
    try:
        if path.suffix.lower() == ".npy":
            arrays = {path.stem: np.load(path, mmap_mode="r", allow_pickle=False)}
        else:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"'{path}' cannot be read: {error}", hint="numpy.save and numpy.savez write such files"
        ) from None
    for name, array in arrays.items():
        if array.ndim == 0:
            raise InputError(f"'{name}' of '{path}' has no axis of rows")
    return arrays


class PictureSource(RowSource):
    """A picture, or those of a folder."""

    def __init__(self, path: Path, inputs: Mapping[str, RowInput], form: PictureForm | None) -> None:
        super().__init__(path, inputs)
        self._files = list_pictures(path) if path.is_dir() else [path]
        if not self._files:
            hint = f"files are {', '.join(sorted(SUFFIXES))}; name files of arrays and tables one by one"
            raise InputError(f"there are no pictures in '{path}'", hint=hint)
        if form is None:
            raise InputError(f"'{path}' has pictures, of which the size is not known", hint="--image 224x224")
        if len(inputs) != 1:
            raise InputError(f"a picture is one input, the model has {len(inputs)}: {', '.join(inputs)}")
        self._form = form

    @property
    def identity(self) -> list[Any]:
        return [str(self.path), *([str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in self._files)]

    def __len__(self) -> int:
        return len(self._files)

    def rows(self, start: int, stop: int) -> Iterator[Row]:
        ((name, port),) = self.inputs.items()
        for file in self._files[start:stop]:
            yield {"file": str(file)}, guarded(partial(self._feeds, name, port, file))

    def _feeds(self, name: str, port: RowInput, file: Path) -> Feeds:
        return {name: self._form.array(file, port, str(file))}
