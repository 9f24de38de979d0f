"""Files .npz of arrays of any names: ``numpy.savez`` takes no array that has the name of one of its parameters."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import IO

import numpy as np


def write_arrays(file: str | os.PathLike[str] | IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a path or an open file, without pickles.  Raises ValueError for an array of objects."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
