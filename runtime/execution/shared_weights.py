"""Weights that the pools of several sessions share: those of one file on one device are there once.

A weight is known by the identity of its files and by its key.  A pool that has made one offers it; others take it while
it lives.  The last that releases it destroys it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import MutableMapping

from ..device.device import Device
from ..memory.buffers import OwnedBuffer

#: (identity of the files, key of the weight) -> its buffer, and how many pools have it
_Entries = dict[tuple[str, str], tuple[OwnedBuffer, int]]

_devices: MutableMapping[Device, _Entries] = weakref.WeakKeyDictionary()
_lock = threading.RLock()  # a collection inside may close a pool


def offer(device: Device, identity: str, key: str, buffer: OwnedBuffer) -> bool:
    """Let other pools have a complete weight; return False if another one is there already."""
    with _lock:
        entries = _devices.setdefault(device, {})
        if (identity, key) in entries:
            return False
        entries[identity, key] = buffer, 1
        return True


def take(device: Device, identity: str, key: str) -> OwnedBuffer | None:
    """Return the buffer of a weight for one more pool, which must release it; None if there is none."""
    with _lock:
        entries = _devices.get(device, {})
        buffer, users = entries.get((identity, key), (None, 0))
        if buffer is None or buffer.gpu is None:
            return None
        entries[identity, key] = buffer, users + 1
        return buffer


def release(device: Device, identity: str, key: str) -> None:
    """Give up a weight that was offered or taken; the last pool's release destroys it."""
    with _lock:
        entries = _devices[device]
        buffer, users = entries.pop((identity, key))
        if users > 1:
            entries[identity, key] = buffer, users - 1
        else:
            buffer.destroy()
