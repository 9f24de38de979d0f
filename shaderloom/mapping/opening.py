"""Which kind of source a path is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..runtime.plan.errors import InputError, MissingInputError
from .columns import RowInput
from .pictures import SUFFIXES, PictureForm
from .sources import ArraySource, PictureSource, RowSource
from .tables import TableSource


def open_source(
    path: Path,
    inputs: Mapping[str, RowInput],
    columns: Mapping[str, str],
    carried: Sequence[str],
    form: PictureForm | None,
) -> RowSource:
    """Open a file or a folder.  ``columns`` are those of inputs, ``carried`` those that the result has, too.

    Raises :class:`InputError` for what is not there, or no rows of these inputs.
    """
    if not path.exists():
        raise MissingInputError(path)
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in SUFFIXES:
        return PictureSource(path, inputs, form)
    if suffix in (".npy", ".npz"):
        return ArraySource(path, inputs, columns)
    if suffix in (".parquet", ".arrow", ".feather"):
        return TableSource(path, inputs, columns, carried, form)
    raise InputError(f"'{path}' has no rows", hint="inputs are .npy, .npz, .parquet and .arrow files, and pictures")
