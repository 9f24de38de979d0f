"""Which devices a pool uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..api.arguments import entries, is_integer
from ..runtime.device.adapters import OPENGL, AdapterDescription, list_adapters
from ..runtime.device.forking import FORKED, is_forked
from ..runtime.plan.errors import DeviceError, InputError

Devices = str | Sequence[str | int]
_MEANING = "devices is 'all', 'cpu' or a list of adapters, each an index or a part of a name"
_HINT = "devices=[0, 1]"


def choose_devices(devices: Devices) -> list[str | int | None]:
    """Return the device of each worker: ``"all"``, ``"cpu"`` for the host, or adapters by index or part of a name.

    All are those of the best kind that there is: every GPU, once each; software adapters only where there is no GPU.
    Raises :class:`InputError` for anything else, and :class:`DeviceError` where there is none.
    """
    if devices == "cpu":
        return [None]
    if devices == "all":
        if is_forked():
            raise DeviceError(f"{FORKED}, where adapters cannot be listed", hint="name them by number: devices=[0]")
        return [adapter.index for adapter in _best(list_adapters())] or [None]
    single: Any = devices
    chosen = [single] if isinstance(single, str) or is_integer(single) else entries(single, _MEANING, _HINT)
    if not chosen or not all(is_integer(each) or (isinstance(each, str) and each) for each in chosen):
        raise InputError(f"{_MEANING}, not {devices!r:.80}", hint=_HINT)
    return [each if isinstance(each, str) else int(each) for each in chosen]


def _best(adapters: Sequence[AdapterDescription]) -> list[AdapterDescription]:
    """Return the GPUs, or else the software adapters, each by the first of its backends; of OpenGL only alone."""
    usable = [each for each in adapters if each.backend != OPENGL] or list(adapters[:1])
    best = [each for each in usable if not each.is_software] or usable
    return [each for each in best if each.backend == best[0].backend]
