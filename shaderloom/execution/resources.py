"""Resources that the plans of one session share on a device."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..model.compiled import CompiledPlan
from ..runtime.device.device import Device
from ..runtime.device.pipeline_compiler import PipelineCompiler
from ..runtime.execution.executor import Executor
from ..runtime.execution.requirements import check_memory
from ..runtime.execution.weight_pool import WeightPool
from ..runtime.memory.buffers import StagingPool
from ..runtime.plan.caps import MemoryAccount
from ..runtime.plan.errors import LimitError
from ..runtime.plan.plan import Kernel
from .plan_source import PlanSource


@dataclass
class KeyStats:
    """Costs of one shape key, in milliseconds."""

    compile_ms: float  #: from the shapes to the plan, read from the disk or compiled
    from_disk: bool
    prepare_ms: float  #: weights, pipelines, buffers
    is_range: bool  #: the plan serves a range of sizes, not these alone
    runs: int = 0


#: Rows of :attr:`SessionStats.keys`
MAX_ROWS = 1024


@dataclass
class SessionStats:
    """Counts since the session was created.

    ``keys`` is by shape key as text, for a stage with the first node that was left; an evicted key keeps its row while
    it is among the last :data:`MAX_ROWS`.
    """

    hits: int = 0
    misses: int = 0
    disk_hits: int = 0  #: misses served by the disk cache
    evictions: int = 0
    compile_ms: float = 0.0  #: of all plans
    prepare_ms: float = 0.0  #: of all plans
    last_key: str = ""
    last_run_ms: float = 0.0
    keys: dict[str, KeyStats] = field(default_factory=dict)
    #: why no plan serves a range of sizes that keep changing, by the range: each size has a plan of its own then
    refused_ranges: dict[str, str] = field(default_factory=dict)
    #: of the last run: kinds of its steps, calls on the device, and values that crossed providers
    steps: list[str] = field(default_factory=list)
    calls: int = 0
    crossings: list[Any] = field(default_factory=list)

    def add(self, key: str, row: KeyStats) -> None:
        """Keep the row of a plan, and drop the one that was added first beyond :data:`MAX_ROWS`."""
        self.keys[key] = row
        if len(self.keys) > MAX_ROWS:
            del self.keys[next(iter(self.keys))]

    @property
    def ranges(self) -> list[str]:
        """The shape keys of plans that serve a range of sizes."""
        return [key for key, row in self.keys.items() if row.is_range]

    @property
    def points(self) -> list[str]:
        """The shape keys of plans that serve one size alone."""
        return [key for key, row in self.keys.items() if not row.is_range]


class DeviceResources:
    """A device with the weights, the staging memory and the statistics of one session.

    ``checked`` keeps bounds checks of shaders that are trusted, None only those on software drivers; others always have
    them.  ``poison`` makes executors overwrite activations before each run (see :class:`Executor`).
    """

    device: Device
    account: MemoryAccount
    staging: StagingPool
    pool: WeightPool

    def __init__(
        self,
        source: PlanSource,
        device: Device,
        *,
        checked: bool | None = None,
        use_native: bool | None = None,
        poison: bool = False,
    ) -> None:
        self.stats = SessionStats()
        self._source = source
        self._checked = checked
        self._use_native = use_native
        self._poison = poison
        self._compiler: PipelineCompiler | None = None
        self._attach(device)

    def _attach(self, device: Device) -> None:
        self.device = device
        self.account = MemoryAccount(self._source.caps.device_memory)
        self.staging = StagingPool(device, self.account)
        self.pool = WeightPool(
            device,
            self._source.sources,
            self.account,
            caps=self._source.caps,
            progress=partial(self._source.progress, "loading weights"),
            files=self._source.weight_files,
        )

    def move_to(self, device: Device) -> None:
        """Free what is on the device, and start again on another one."""
        self.close()
        self._attach(device)

    def weights(self) -> WeightPool:
        """Return a weight pool for temporary plans; the caller closes it."""
        return WeightPool(self.device, self._source.sources, self.account, caps=self._source.caps)

    def add_kernel(self, kernel: Kernel) -> None:
        """Begin to compile a kernel that this process has generated, of the plan that :meth:`executor` will get."""
        if self._compiler is None:
            self._compiler = self._new_compiler(checked=self._keeps_checks)
        self._compiler.add(kernel)

    @property
    def _keeps_checks(self) -> bool:
        return self.device.keeps_checks if self._checked is None else self._checked

    def _new_compiler(self, *, checked: bool) -> PipelineCompiler:
        return PipelineCompiler(
            self.device,
            checked=checked,
            max_wgsl_bytes=self._source.caps.wgsl_bytes,
            progress=partial(self._source.progress, "compiling shaders"),
        )

    def _take_compiler(self, *, checked: bool) -> PipelineCompiler:
        """Return the compiler that :meth:`add_kernel` has started, or a new one if it treats bounds differently."""
        started, self._compiler = self._compiler, None
        if started is not None and checked == self._keeps_checks:
            return started
        if started is not None:
            started.stop()
        return self._new_compiler(checked=checked)

    def executor(self, compiled: CompiledPlan, pool: WeightPool | None = None) -> Executor:
        """Return an executor of a new plan, counted in the statistics.

        With a weight ``pool`` of its own it is not counted: it runs for a calibration, or for observation.  Raises
        :class:`LimitError` before it makes anything for a plan that takes more memory than there may be.
        """
        checked = self._keeps_checks or not compiled.trusted
        start = time.perf_counter()
        compiler = self._take_compiler(checked=checked)
        weights = self.pool if pool is None else pool
        try:
            check_memory(compiled.plan, weights.missing(compiled.plan), self.device.profile, self.account.cap)
        except LimitError:
            compiler.stop()
            raise
        executor = Executor(
            self.device,
            compiled.plan,
            weights,
            caps=self._source.caps,
            account=self.account,
            staging=self.staging,
            checked=checked,
            use_native=self._use_native,
            poison=self._poison,
            compiler=compiler,
            fault=compiled.fault,
        )
        if pool is None:
            self.stats.misses += 1
            self.stats.disk_hits += compiled.from_disk
            self.stats.compile_ms += compiled.milliseconds
            self.stats.prepare_ms += (time.perf_counter() - start) * 1e3
        return executor

    def load(
        self, compiled: CompiledPlan, pool: WeightPool | None = None, *, is_range: bool
    ) -> tuple[Executor, KeyStats]:
        """Return the :meth:`executor` of a plan, and what it cost."""
        before = self.stats.prepare_ms
        executor = self.executor(compiled, pool)
        return executor, KeyStats(compiled.milliseconds, compiled.from_disk, self.stats.prepare_ms - before, is_range)

    def close(self) -> None:
        if self._compiler is not None:
            self._compiler.stop()
            self._compiler = None
        self.pool.close()
        self.staging.close()
