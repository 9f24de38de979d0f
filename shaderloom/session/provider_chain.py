"""Providers at work: what the first cannot run goes to the next, and says so."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..cpu.provider import CpuEngine
from ..execution.engine import SEEN_SHAPES, WgpuEngine
from ..notices import WARNING, notify
from ..runtime.device.device import Device, open_device
from ..runtime.execution.attachment import Target
from ..runtime.execution.ports import Feed
from ..runtime.execution.timing import Profile
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import (
    ClosedError,
    DeviceLimitError,
    InputError,
    NotKnownError,
    ShaderloomError,
    ShapeError,
    UnsupportedError,
)
from ..runtime.plan.plan import Plan

if TYPE_CHECKING:
    from ..execution.program import Program
    from ..model.model import Model

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

    A model that wgpu can run whole, for the shapes at hand, is one plan.  Else it is a program (:mod:`.program`):
    stages where shapes depend on data, and segments on the cpu for nodes that wgpu refuses, if the session has that
    provider.
    """

    def __init__(
        self,
        providers: Sequence[str],
        engine: WgpuEngine | None,
        cpu: CpuEngine | None,
        *,
        severity: int = WARNING,
        plans: int = 16,
    ) -> None:
        self._providers = tuple(providers)
        self._engine = engine
        self._cpu = cpu
        self._severity = severity
        self._plans = plans
        self._program: Program | None = None
        self._in_program: set[Any] = set()  #: input shapes for which the model is no single plan
        self._always = engine is not None and engine.source.header.refused > 0
        self._told: set[str] = set()
        self._last_was_program = False

    def run(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target]) -> dict[str, Any]:
        """Outputs by name, from the first provider that supports the model for these inputs."""
        engine, cpu = self._engine, self._cpu
        if engine is None or (cpu is not None and self._providers[0] == "cpu"):
            assert cpu is not None, "a provider was initialised"
            try:
                return self._run_on_cpu(cpu, feeds, targets)
            except UnsupportedError as error:
                if engine is None:
                    raise
                self._tell(f"provider 'cpu' cannot run the model, 'wgpu' does: {error}")
        assert engine is not None
        if self._always or self._in_program:
            shapes = tuple((name, feed.shape) for name, feed in feeds.items()) if not self._always else None
            if self._always or shapes in self._in_program:
                return self._run_program(engine, feeds, targets)
        self._last_was_program = False
        try:
            return engine.run(feeds, targets)
        except (UnsupportedError, ShapeError, DeviceLimitError) as error:
            if not self._may_go_on(error):
                raise
        if len(self._in_program) >= SEEN_SHAPES:
            self._in_program.clear()
        self._in_program.add(tuple((name, feed.shape) for name, feed in feeds.items()))
        return self._run_program(engine, feeds, targets)

    def again(self, feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> dict[str, Any] | None:
        """The outputs if the last run had these very tensors of the device in and out; they were checked then."""
        engine = self._engine
        if engine is None or self._providers[0] == "cpu" or self._always or self._in_program:
            return None
        return engine.again(feeds, targets)

    def calibrate(self, feeds: Mapping[str, Feed]) -> None:
        """Look at what a run with ``feeds`` reaches; see :meth:`WgpuEngine.calibrate`."""
        engine = self._engine
        assert engine is not None, "the session has a device"
        engine.need_calibration()
        shapes = {name: feed.shape for name, feed in feeds.items()}
        if not self._always and tuple(shapes.items()) not in self._in_program:
            try:
                return engine.calibrate(feeds)
            except (UnsupportedError, ShapeError, DeviceLimitError) as error:
                if not self._may_go_on(error):
                    raise
        return self.program().calibrate(feeds)

    def profile(self, feeds: Mapping[str, Feed]) -> list[tuple[Plan, Profile]]:
        """Run once on the device; the plans that ran, in order, with the time of every call."""
        engine = self._engine
        assert engine is not None, "the session has a device"
        shapes = {name: feed.shape for name, feed in feeds.items()}
        if not self._always and tuple(shapes.items()) not in self._in_program:
            try:
                executor = engine.ready(shapes).executor
            except (UnsupportedError, ShapeError, DeviceLimitError) as error:
                if not self._may_go_on(error):
                    raise
            else:
                return [(executor.plan, executor.profile(feeds))]
        return self.program().profile(feeds)

    def _may_go_on(self, error: ShaderloomError) -> bool:
        """Whether a model that is no single plan for this reason may be a program."""
        if not hasattr(getattr(self._engine, "source", None), "imported"):  # a bundle
            return False
        return self._cpu is not None or isinstance(error, (NotKnownError, UnsupportedError))

    def program(self) -> Program:
        """The model as a program; made when first asked for."""
        from ..execution.program import Program

        assert self._engine is not None
        if self._program is None:
            source = self._engine.source
            self._program = Program(cast("Model", source), self._engine, self._cpu, plans=self._plans)
        return self._program

    @property
    def runs_program(self) -> bool:
        """Whether the last run was that of a program, or every run is."""
        return self._always or self._last_was_program

    def reset(self) -> None:
        """Forget what was compiled: the device is another one."""
        if self._program is not None:
            self._program.close()
            self._program = None

    def close(self) -> None:
        self.reset()
        for engine in (self._engine, self._cpu):
            if engine is not None:
                engine.close()

    def _run_program(
        self, engine: WgpuEngine, feeds: Mapping[str, Feed], targets: Mapping[str, Target]
    ) -> dict[str, Any]:
        if engine.closed:
            raise ClosedError("the session is closed")
        program = self.program()
        start = time.perf_counter()
        results = program.run(feeds, targets)
        stats = engine.stats
        stats.last_run_ms = (time.perf_counter() - start) * 1e3
        stats.steps, stats.crossings = program.last.steps, program.last.crossings
        self._last_was_program = True
        on_cpu = [f"{entry[0]}: {entry[3]}" for entry in list(program.context.placed.values()) if entry[2] == "cpu"]
        if on_cpu:
            more = f", and {len(on_cpu) - 3} more" if len(on_cpu) > 3 else ""
            self._tell(
                f"provider 'wgpu' cannot run {len(on_cpu)} nodes, 'cpu' does (session.placement() lists them): "
                f"{'; '.join(on_cpu[:3])}{more}"
            )
        return results

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            notify(message, severity=self._severity, stacklevel=5)

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
