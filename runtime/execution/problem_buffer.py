"""The numbers that calls give to kernels which several problems share: one uniform buffer for all of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device.device import Device
from ..memory.buffers import COPY_DST, UNIFORM, OwnedBuffer, write
from ..plan.caps import MemoryAccount
from ..plan.errors import InternalError

#: Words to which uniform bindings are aligned on any device
_ALIGNMENT = 64


class ProblemBuffer:
    """The problems of a plan on a device; each begins at an offset that a call may bind."""

    def __init__(self, device: Device, account: MemoryAccount, problems: Sequence[Sequence[int]]) -> None:
        words: list[int] = []
        self._offsets: list[int] = []
        for problem in problems:
            self._offsets.append(4 * len(words))
            words += [*problem, *[0] * (-len(problem) % _ALIGNMENT)]
        self._buffer: OwnedBuffer | None = None
        if words:
            self._buffer = OwnedBuffer(device, account, 4 * len(words), UNIFORM | COPY_DST, "problems")
            write(device, self._buffer.gpu, 0, np.array(words, np.int32))

    @property
    def size(self) -> int:
        return 0 if self._buffer is None else self._buffer.size

    def resolve(self, name: str) -> tuple[Any, int]:
        """Return the buffer of ``problem:N`` and the offset in it."""
        number = int(name.partition(":")[2])
        if self._buffer is None or number >= len(self._offsets):
            raise InternalError(f"a call binds '{name}', which the plan does not define")
        return self._buffer.gpu, self._offsets[number]

    def destroy(self) -> None:
        if self._buffer is not None:
            self._buffer.destroy()
            self._buffer = None
