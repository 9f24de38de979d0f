"""The device of a session, opened by a thread while the session reads its model: the driver's part needs no GIL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from ..notices import SoftwareAdapterWarning, notify
from ..runtime.device.awaited_thread import AwaitedThread
from ..runtime.device.device import Device
from ..runtime.device.opening import open_device
from ..runtime.plan.device_profile import DeviceProfile

#: Options of the provider wgpu -> argument of :func:`open_device`; "deviceId" and the like are ONNX Runtime's
_DEVICE_OPTIONS = {
    "device": "choice",
    "device_id": "choice",
    "deviceId": "choice",
    "power_preference": "power_preference",
    "powerPreference": "power_preference",
}


class OpeningDevice:
    """The device that the arguments of a session and the provider's options select, while it is opened.

    The thread runs inside of ``with`` alone.  Errors are those of opening the device first and running the block then:
    if both fail, the device's error is raised.
    """

    def __init__(self, device: Any, options: Mapping[str, Any], severity: int) -> None:
        self._arguments: dict[str, Any] = {}
        for name, value in options.items():
            if name in _DEVICE_OPTIONS:
                self._arguments[_DEVICE_OPTIONS[name]] = value
            else:
                notify(
                    f"the option '{name}' of provider 'wgpu' has no effect",
                    once=f"wgpu {name}",
                    severity=severity,
                )
        if device is not None:
            self._arguments["choice"] = device
        self._severity = severity
        self._future: Future[Device] = Future()
        self._profile: Future[DeviceProfile | None] = Future()
        self._thread = AwaitedThread(target=self._open, name="shaderloom-device")

    def _open(self) -> None:
        try:
            self._future.set_result(open_device(**self._arguments, on_profile=self._profile.set_result))
        except BaseException as error:
            self._future.set_exception(error)
        if not self._profile.done():
            self._profile.set_result(None)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._thread.join()
        if isinstance(error, Exception):
            failure = self._future.exception()
            if failure is not None and failure is not error:
                raise failure

    def wait_for_profile(self) -> DeviceProfile | None:
        """Return the profile of a device that is still being made; None for one that is there, or fails."""
        return self._profile.result()

    @property
    def is_there(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self._future.done()

    def result(self) -> Device:
        """Wait for the device.  Raises what :func:`open_device` does."""
        return self._future.result()

    @property
    def is_unasked_software(self) -> bool:
        """Whether the device is a software driver that was not asked for."""
        asked = self._arguments.get("choice") or os.environ.get("SHADERLOOM_ADAPTER")
        return self.result().profile.is_software and not asked


def warn_of_software(device: Device, severity: int, *, is_decoder: bool) -> None:
    """Say once that the device is a software one; a decoder that generates text has no other provider."""
    faster = (
        "onnxruntime on the processor may be faster with the same model"
        if is_decoder
        else "providers=['cpu'] is faster (by onnxruntime, where it is installed)"
    )
    notify(
        f"the only adapter is {device.name}, a software one; on this machine {faster}",
        once="software adapter",
        severity=severity,
        category=SoftwareAdapterWarning,
    )
