"""A run that was submitted: its results when the device has finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..device.device import Device
from ..memory.buffers import OwnedBuffer, StagingPool, mapped
from ..plan.dtypes import BY_NAME, interface_dtype
from ..plan.record import record
from .ports import PortSize


@record
class Readback:
    """A range of the staging buffer that holds an output."""

    output: str
    offset: int
    size: PortSize


class PendingRun:
    """Results of a submitted run.  ``wait`` must be called once; it may run beside further runs."""

    def __init__(
        self,
        device: Device,
        results: Mapping[str, Any],
        readbacks: Sequence[Readback] = (),
        staging: OwnedBuffer | None = None,
        pool: StagingPool | None = None,
    ) -> None:
        self._device = device
        self._results = dict(results)
        self._readbacks = readbacks
        self._staging = staging
        self._pool = pool

    def wait(self) -> dict[str, Any]:
        """Return the results by name.  Waits for the device only if something is read back.

        Raises :class:`DeviceError` or :class:`DeviceLost` if the run failed on the device.
        """
        staging = self._staging
        if staging is None:
            return self._results
        self._staging = None
        assert self._pool is not None, "staging memory comes from a pool"
        last = self._readbacks[-1]
        try:
            with mapped(self._device, staging.gpu, last.offset + last.size.border) as view:
                for item in self._readbacks:
                    size = item.size
                    array = np.frombuffer(view, interface_dtype(BY_NAME[size.dtype]), size.elements, item.offset)
                    self._results[item.output] = array.reshape(size.shape).copy()
        except BaseException:
            staging.destroy()  # it may be mapped or about to be: never lend it again
            raise
        self._pool.give_back(staging)
        return self._results
