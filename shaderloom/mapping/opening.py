"""Which kind of source a path is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..runtime.plan.errors import InputError, MissingInputError
from .columns import RowInput
from .pictures import SUFFIXES, PictureForm
from .sources import ArraySource, PictureSource, RowSource
from .tables import TableSource

_TABLES = (".parquet", ".arrow", ".feather")


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
    if carried and suffix not in _TABLES:
        raise InputError(f"'{path}' has no column '{carried[0]}'", hint="the result has columns of tables alone")
    if form is not None and form.is_scaled and all(port.dtype == np.uint8 for port in inputs.values()):
        raise InputError("the model takes bytes, of which no --mean is subtracted", hint="leave --mean and --std out")
    if path.is_dir() or suffix in SUFFIXES:
        return PictureSource(path, inputs, form)
    if suffix in (".npy", ".npz"):
        return ArraySource(path, inputs, columns)
    if suffix in _TABLES:
        return TableSource(path, inputs, columns, carried, form)
    raise InputError(f"'{path}' has no rows", hint="inputs are .npy, .npz, .parquet and .arrow files, and pictures")
