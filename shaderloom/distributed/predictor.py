"""A class for ``ray.data.Dataset.map_batches``: batches of columns in, batches with the outputs out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..batching.row_runner import RowRunner
from ..bundles.session import open_session
from ..mapping.columns import parse_columns, row_inputs
from ..pool.pool import AUTO_BATCH
from ..runtime.device.adapters import list_adapters
from ..runtime.plan.errors import UnsupportedError
from .assigned_device import assigned_adapter, check_card


class Predictor:
    """Runs a model on batches of numpy or Arrow::

        dataset.map_batches(Predictor, fn_constructor_kwargs={"model": path}, concurrency=4, num_gpus=1)

    ``model`` is the path of a model or of a bundle that every node has, or bytes. ``columns`` names the column of an
    input where names differ. The result has the columns of the batch and those of the outputs. The session opens on the
    GPU that Ray assigned; plans are compiled once for each node and kept in its disk cache. The other options are those
    of :class:`InferenceSession`.
    """

    def __init__(self, model: Any, *, columns: Mapping[str, str] | None = None, **options: Any) -> None:
        gpus = assigned_gpus()
        if "device" not in options and options.get("providers") != ["cpu"]:
            options["device"] = assigned_adapter(gpus, list_adapters())
        self.session = open_session(model, **options)
        self._columns = dict(columns or {})
        self._names = [port.name for port in self.session.get_outputs()]
        rows = self.session.as_rows()
        self._inputs = row_inputs(rows.header)
        try:
            self._runner: RowRunner | None = RowRunner(rows, AUTO_BATCH)
        except UnsupportedError:
            self._runner = None
        self._unchecked = gpus[0] if gpus and options.get("device") is not None else None

    def __call__(self, batch: Any) -> Any:
        """Return the batch, a dict of arrays or a table of Arrow, with the outputs.

        Raises :class:`InputError` for columns that do not fit the model.
        """
        is_table = hasattr(batch, "column_names")
        arrays = {name: _array(batch, name) for name in (batch.column_names if is_table else batch)}
        columns = parse_columns(self._columns, list(arrays), self._inputs)
        feeds = {
            name: np.concatenate([port.array(row, f"column '{columns[name]}'") for row in arrays[columns[name]]])
            for name, port in self._inputs.items()
        }
        outputs = self._run(feeds)
        if is_table:
            for name, array in zip(self._names, outputs):
                batch = batch.append_column(name, [_lists(array)])
            return batch
        return {**batch, **dict(zip(self._names, outputs))}

    def _run(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        if self._unchecked is not None:
            gpu, self._unchecked = self._unchecked, None
            check_card(gpu, lambda: self._upload(feeds))
        if self._runner is not None:
            with contextlib.suppress(UnsupportedError):  # of rows of these shapes
                return self._runner.outputs_of(self._runner.request(feeds))
        count = len(next(iter(feeds.values())))
        rows = [self.session.run(None, {name: a[i : i + 1] for name, a in feeds.items()}) for i in range(count)]
        return [np.concatenate(arrays) for arrays in zip(*rows, strict=True)]

    def _upload(self, feeds: dict[str, np.ndarray]) -> int:
        """Run one row; return the bytes that the session holds on the device then."""
        self.session.run(None, {name: array[:1] for name, array in feeds.items()})
        return self.session.device_bytes


def assigned_gpus() -> list[int]:
    """Return the numbers of the GPUs that Ray assigned to this worker, by the PCI bus."""
    import ray

    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if not ray.is_initialized():
        return []
    ids = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    return [int(each) for each in ids if str(each).isdecimal()]


def _array(batch: Any, name: str) -> Any:
    column = batch[name]
    if not hasattr(column, "combine_chunks"):
        return column
    return [np.asarray(value.as_py()) for value in column]


def _lists(array: np.ndarray) -> Any:
    """Return rows of numbers, or of flat lists, as an array of Arrow."""
    import pyarrow

    flat = pyarrow.array(array.reshape(-1))
    size = int(np.prod(array.shape[1:]))
    return flat if array.ndim == 1 else pyarrow.FixedSizeListArray.from_arrays(flat, size)
