"""The providers of a session: what the first cannot run falls back to the next, with a notice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..cpu.provider import CpuEngine
from ..execution.engine import WgpuEngine
from ..notices import notify
from ..runtime.device.forking import FORK_REMEDY, FORKED, is_forked
from ..runtime.execution.attachment import Target
from ..runtime.execution.ports import Feed
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import InputError, UnsupportedError


class ProviderChain:
    """The providers of one session, at least one.

    Nodes that wgpu refuses run on cpu as segments of its program, if the session has that provider; a model runs on cpu
    as a whole where that comes first, or is the only one, and in a forked child, which has no device.
    """

    def __init__(
        self,
        providers: Sequence[str],
        engine: WgpuEngine | None,
        cpu: CpuEngine | None,
        *,
        severity: int = -1,
    ) -> None:
        self._providers = tuple(providers)
        self._engine = engine
        self._cpu = cpu
        self._severity = severity
        self._reported: set[str] = set()
        if engine is not None and cpu is not None:
            engine.cpu_options = cpu.options

    def run(self, feeds: Mapping[str, Feed], targets: Mapping[str, Target]) -> dict[str, Any]:
        """Return outputs by name, from the first provider that supports the model for these inputs."""
        engine, cpu = self._engine, self._cpu
        if cpu is not None and engine is not None and is_forked():
            self._report(f"{FORKED}: the model runs on the cpu here [{FORK_REMEDY}]")
            engine = None
        if engine is None or (cpu is not None and self._providers[0] == "cpu"):
            assert cpu is not None, "a provider was initialised"
            try:
                return self._run_on_cpu(cpu, feeds, targets)
            except UnsupportedError as error:
                if engine is None:
                    raise
                self._report(f"provider 'cpu' cannot run the model, 'wgpu' does: {error}")
        assert engine is not None
        results = engine.run(feeds, targets)
        if cpu is not None and engine.ran_steps:
            self._report_segments(engine)
        return results

    def try_replay(self, feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> dict[str, Any] | None:
        """Replay the last run if its inputs and outputs were these tensors, checked then; return None otherwise."""
        if self._engine is None or self._providers[0] == "cpu":
            return None
        return self._engine.try_replay(feeds, targets)

    def close(self) -> None:
        for engine in (self._engine, self._cpu):
            if engine is not None:
                engine.close()

    def _report_segments(self, engine: WgpuEngine) -> None:
        """Report which nodes run on cpu, once."""
        on_cpu = [f"{entry[0]}: {entry[3]}" for entry in engine.program.placed() if entry[2] == "cpu"]
        if on_cpu:
            more = f", and {len(on_cpu) - 3} more" if len(on_cpu) > 3 else ""
            self._report(
                f"provider 'wgpu' cannot run {len(on_cpu)} {'node' if len(on_cpu) == 1 else 'nodes'}, 'cpu' does "
                f"(session.placement() lists them): "
                f"{'; '.join(on_cpu[:3])}{more}"
            )

    def _report(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            notify(message, severity=self._severity)

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
