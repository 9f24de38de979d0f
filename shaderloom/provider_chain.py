"""Providers at work: what the first cannot run goes to the next, and says so."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from .cpu_provider import CpuEngine
from .engine import WgpuEngine
from .notices import WARNING, notify
from .runtime.attachment import Target
from .runtime.device import Device, open_device
from .runtime.errors import InputError, UnsupportedError
from .runtime.ports import Feed
from .runtime.tensor import Tensor

#: Options of the provider wgpu -> argument of :func:`open_device`; "deviceId" and the like are ONNX Runtime's
_DEVICE_OPTIONS = {
    "device": "choice",
    "device_id": "choice",
    "deviceId": "choice",
    "power_preference": "power_preference",
    "powerPreference": "power_preference",
}


class ProviderChain:
    """The providers of one session, of which at least one is there.

    The whole model runs on one provider.  Input shapes for which the first raises :class:`UnsupportedError` go to the
    second from then on.
    """

    def __init__(
        self, providers: Sequence[str], engine: WgpuEngine | None, cpu: CpuEngine | None, *, severity: int = WARNING
    ) -> None:
        self._providers = tuple(providers)
        self._engine = engine
        self._cpu = cpu
        self._severity = severity
        self._refused: set[tuple[str, Any]] = set()  #: (provider, input shapes)

    def run(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target]) -> dict[str, Any]:
        """Outputs by name, from the first provider that supports the model for these inputs."""
        if len(self._providers) == 1:
            return self._run_on(self._providers[0], feeds, targets)
        shapes = tuple((name, feed.shape) for name, feed in feeds.items())
        left = [name for name in self._providers if (name, shapes) not in self._refused] or list(self._providers)
        for name, following in pairwise(left):
            try:
                return self._run_on(name, feeds, targets)
            except UnsupportedError as error:
                self._refused.add((name, shapes))
                notify(
                    f"provider '{name}' cannot run these inputs, '{following}' does: {error}",
                    severity=self._severity,
                    stacklevel=4,
                )
        return self._run_on(left[-1], feeds, targets)

    def close(self) -> None:
        for engine in (self._engine, self._cpu):
            if engine is not None:
                engine.close()

    def _run_on(self, provider: str, feeds: Mapping[str, Feed], targets: Mapping[str, Target]) -> dict[str, Any]:
        if provider == "wgpu":
            assert self._engine is not None, "the provider was initialised"
            return self._engine.run(feeds, targets)
        assert self._cpu is not None, "the provider was initialised"
        return self._run_on_cpu(self._cpu, feeds, targets)

    def _run_on_cpu(self, cpu: CpuEngine, feeds: Mapping[str, Feed], targets: Mapping[str, Target]) -> dict[str, Any]:
        """Run on the host; tensors are copied from and to the device, if there is one."""
        arrays = {name: feed.numpy() if isinstance(feed, Tensor) else feed for name, feed in feeds.items()}
        results = cpu.run(arrays, list(targets))
        for name, target in targets.items():
            if isinstance(target, Tensor):
                target.update(results[name])
                results[name] = target
            elif target == "gpu-buffer":
                if self._engine is None:
                    raise InputError("outputs cannot stay on a device: the session runs on cpu alone", tensor=name)
                results[name] = Tensor.from_numpy(results[name], self._engine.device)
        return results


def open_chosen(device: Any, options: Mapping[str, Any], severity: int) -> Device:
    """The device that the arguments and the provider's options ask for."""
    arguments: dict[str, Any] = {}
    for name, value in options.items():
        if name in _DEVICE_OPTIONS:
            arguments[_DEVICE_OPTIONS[name]] = value
        else:
            notify(f"the option '{name}' of provider 'wgpu' has no effect", once=f"wgpu {name}", severity=severity)
    if device is not None:
        arguments["choice"] = device
    opened = open_device(**arguments)
    if opened.profile.kind == "cpu" and not arguments.get("choice") and not os.environ.get("SHADERLOOM_ADAPTER"):
        notify(
            f"the only adapter is {opened.name}, a software one; on this machine providers=['cpu'] is faster "
            "(by onnxruntime, where it is installed)",
            once="software adapter",
            severity=severity,
            stacklevel=6,
        )
    return opened
