"""A class for ``ray.data.Dataset.map_batches``: batches of columns in, batches with the outputs out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..batching.row_runner import RowRunner
from ..bundles.session import open_session
from ..mapping.columns import parse_columns, row_inputs
from ..mapping.results import row_of
from ..pool.answers import apart
from ..pool.chunk import Chunk, Item
from ..pool.pool import AUTO_BATCH
from ..pool.worker import Answers, answers_of
from ..runtime.device.adapters import list_adapters
from ..runtime.plan.declared_port import DeclaredPort
from ..runtime.plan.dtypes import BY_NAME, interface_dtype
from ..runtime.plan.errors import InputError, UnsupportedError
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
        self._header, self._inputs = rows.header, row_inputs(rows.header)
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
        for name in self._names:
            if name in arrays:
                raise InputError(f"the batch has a column '{name}', as the result", hint="rename it, or drop it")
        if len(arrays[next(iter(columns.values()))]):
            feeds = {
                name: np.concatenate([port.array(row, f"column '{columns[name]}'") for row in arrays[columns[name]]])
                for name, port in self._inputs.items()
            }
            outputs = self._run(feeds)
        else:
            outputs = [_no_rows(port) for port in self._header.outputs]
        if is_table:
            for name, array in zip(self._names, outputs):
                batch = batch.append_column(name, [_lists(array)])
            return batch
        return {**batch, **dict(zip(self._names, outputs))}

    def outcomes(self, rows: Sequence[Any]) -> list[Any]:
        """Return the outputs of each row, a mapping of inputs, by name, or its error; equal shapes are joined."""
        outcomes: list[Any] = [None] * len(rows)
        items: list[Item] = []
        for number, row in enumerate(rows):
            try:
                items.append((number, self._feeds(row)))
            except InputError as error:
                outcomes[number] = error
        if items:
            self._check_card(items[0][1])
        for number, outcome in apart(self._answer(Chunk([], items))):
            is_error = isinstance(outcome, Exception)
            outcomes[number] = outcome if is_error else dict(zip(self._names, map(row_of, outcome), strict=True))
        return outcomes

    @cached_property
    def _answer(self) -> Answers:
        return answers_of(self.session, AUTO_BATCH, is_asked=False)

    def _feeds(self, row: Any) -> dict[str, np.ndarray]:
        """Return the inputs of a row.  Raises :class:`InputError` for other names, and elements that do not fit."""
        if not isinstance(row, Mapping):
            raise InputError(f"a row is a mapping of inputs, not a {type(row).__name__}")
        columns = parse_columns(self._columns, list(row), self._inputs)
        for name in set(row).difference(columns.values()):
            raise InputError(f"the model has no input '{name!s:.80}'", hint=f"its inputs are {', '.join(self._inputs)}")
        return {name: port.array(row[columns[name]], f"'{columns[name]}'") for name, port in self._inputs.items()}

    def _check_card(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Look once whether the device is the GPU that Ray assigned."""
        if self._unchecked is not None:
            gpu, self._unchecked = self._unchecked, None
            check_card(gpu, lambda: self._upload(feeds))

    def _run(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        self._check_card(feeds)
        if self._runner is not None:
            with contextlib.suppress(UnsupportedError):  # of rows of these shapes
                return self._runner.outputs_of(self._runner.request(feeds))
        count = len(next(iter(feeds.values())))
        rows = [self.session.run(None, {name: a[i : i + 1] for name, a in feeds.items()}) for i in range(count)]
        return [np.concatenate(arrays) for arrays in zip(*rows, strict=True)]

    def _upload(self, feeds: Mapping[str, np.ndarray]) -> int:
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
    if array.ndim > 1 and size:
        return pyarrow.FixedSizeListArray.from_arrays(flat, size)
    return flat if array.ndim == 1 else pyarrow.array([[]] * len(array), pyarrow.list_(flat.type))


def _no_rows(port: DeclaredPort) -> np.ndarray:
    """Return an output of no rows, whose open sizes are 0."""
    dtype = BY_NAME.get(port.dtype or "float32", BY_NAME["float32"])
    sizes = (size if isinstance(size, int) else 0 for size in (port.dims or ())[1:])
    return np.empty((0, *sizes), interface_dtype(dtype))
