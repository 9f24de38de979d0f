"""Devices that a process shares: one for each adapter and request."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from ..plan.errors import DeviceLost, InputError
from .adapters import choose_adapter, enumerate_adapters
from .device import Device, OnProfile, request_device

_LOG = logging.getLogger("shaderloom.device")

_POWER_PREFERENCES = ("high-performance", "low-power")

_shared: dict[tuple[int, str, str, str], Device] = {}
_shared_lock = threading.Lock()


def open_device(
    choice: Any = None,
    *,
    power_preference: str | None = None,
    web_limits: bool = False,
    features: bool = True,
    on_profile: OnProfile | None = None,
) -> Device:
    """Return the process-wide device of an adapter; request it when it is first asked for.

    ``choice`` is an adapter's index or part of its name (see :func:`list_adapters`); None reads ``SHADERLOOM_ADAPTER``
    and without it takes the best by ``power_preference``: ``"high-performance"`` (the default) or ``"low-power"``.  A
    :class:`Device` is returned as it is, a ``wgpu.GPUDevice`` wrapped.  ``web_limits`` asks for WebGPU's default
    limits, as a browser grants them; ``features=False`` asks for no optional feature.  ``on_profile`` is called with
    the profile of the device if that is known before the driver has made it.

    Raises :class:`DeviceError` if no adapter fits or the request fails.
    """
    if power_preference not in (None, *_POWER_PREFERENCES):
        raise InputError(
            f"there is no power preference '{power_preference}'", hint=f"use {' or '.join(_POWER_PREFERENCES)}"
        )
    if isinstance(choice, Device):
        return choice
    if choice is not None and not isinstance(choice, (str, int)):
        if not hasattr(choice, "adapter"):
            reason = f"a device is an adapter's index or part of its name, or a device of wgpu, not {choice!r:.80}"
            raise InputError(reason, hint="shaderloom devices lists the adapters")
        return Device.from_wgpu(choice)
    if choice is None:
        choice = os.environ.get("SHADERLOOM_ADAPTER")
    text = "" if choice is None else str(choice)
    request = (os.getpid(), f"{text}/{power_preference or ''}", str(web_limits), str(features))
    with _shared_lock:
        present = _shared.get(request)
        if present is not None and not present.check_lost():
            return present
        for key in [key for key, device in _shared.items() if device.check_lost()]:
            del _shared[key]
        adapters = enumerate_adapters()
        listed = [description for description, _ in adapters]
        chosen = choose_adapter(choice, listed, power_preference)
        identity = (os.getpid(), f"#{chosen.index}", str(web_limits), str(features))
        device = _shared.get(identity)
        if device is None:
            adapter = adapters[chosen.index][1]
            device = request_device(chosen, adapter, web_limits=web_limits, features=features, on_profile=on_profile)
            _LOG.info("opened %s", device.name)
        _shared[request] = _shared[identity] = device
        return device


def reopen_device(lost: Device) -> Device:
    """Return a new device on the adapter of a lost device, or the device itself if it is not lost.

    Raises :class:`DeviceLost` for a device that a caller created: only the caller can replace it.
    """
    if not lost.lost:
        return lost
    if not lost.own:
        raise DeviceLost("the device was made by the caller and is lost", hint="session.recover(device=...)")
    return open_device(lost.name, web_limits=lost.web_limits, features=lost.features)
