"""The session: a model on a device.  A new input shape compiles a new plan; a seen one reuses it."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .compiled import Compiled, PlanSource, Progress
from .feeds import Dynamic, ShapeKey, check_feeds, shape_key
from .header import ModelMetadata, NodeArg
from .inspection import describe_plan
from .runtime.buffers import StagingPool
from .runtime.caps import Caps, MemoryAccount
from .runtime.device import Device, open_device
from .runtime.errors import ClosedError, InputError
from .runtime.executor import Executor
from .runtime.loader import WeightPool
from .runtime.plan import Plan
from .runtime.timing import Profile

if TYPE_CHECKING:
    from .compiler.cache import DiskCache

#: Names by which the provider of this project is known; the others are those of ONNX Runtime
WGPU_PROVIDER_NAMES = ("wgpu", "WebGpuExecutionProvider", "JsExecutionProvider")


@dataclass
class KeyStats:
    """What one shape key cost.  Milliseconds."""

    compile_ms: float  #: from the shapes to the plan, read from the disk or compiled
    from_disk: bool
    prepare_ms: float  #: weights, pipelines, buffers
    runs: int = 0


@dataclass
class SessionStats:
    """Counts since the session was made.  ``keys`` is by shape key as text; an evicted key keeps its row."""

    hits: int = 0
    misses: int = 0
    disk_hits: int = 0  #: misses that the disk cache served
    evictions: int = 0
    compile_ms: float = 0.0  #: of all keys
    last_key: str = ""
    last_run_ms: float = 0.0
    keys: dict[str, KeyStats] = field(default_factory=dict)


@dataclass(frozen=True)
class _Ready:
    """A plan with its executor."""

    key: ShapeKey
    compiled: Compiled
    executor: Executor


class InferenceSession:
    """Runs an ONNX model on a GPU.  Thread-safe.  Close it, use it in ``with``, or let it be collected.

    ``model`` is a path, bytes or a ``ModelProto``.

    ``providers``
        in order of preference; ``"wgpu"`` is the one there is.  One that cannot be had is dropped with a warning.
    ``device``
        part of an adapter's name, its index, a ``wgpu.GPUDevice``, or a :class:`Device`; None takes the best adapter.
    ``dynamic``
        ``{"sequence": (1, 4096)}``: named dimensions that stay symbolic, so that one plan serves all their sizes.
    ``caps``
        bounds on what the model may ask for.
    ``cache``
        True for the user's disk cache, a folder for another, False for none.
    ``plans``
        how many plans are kept ready; the least recently used goes, its weights stay.
    ``bounds_checks``
        False compiles shaders without run-time bounds checks.  Shaders from the disk cache keep them: only what this
        process has generated is trusted so far.
    ``options``
        passed to the compiler.

    Raises the project's errors: :class:`ModelError`, :class:`UnsupportedError`, :class:`DeviceError`, ...
    """

    def __init__(
        self,
        model: Any,
        *,
        providers: Sequence[str] | None = None,
        device: str | int | Device | Any = None,
        dynamic: Dynamic | None = None,
        caps: Caps | None = None,
        cache: bool | str | os.PathLike[str] | DiskCache = True,
        plans: int = 16,
        bounds_checks: bool = True,
        use_native: bool | None = None,
        options: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> None:
        from .model import Model  # leads to the compiler, which sessions of bundles do without

        self._providers = _resolve_providers(providers)
        source = Model(model, dynamic=dynamic, caps=caps, cache=cache, options=options, progress=progress)
        self._open(source, device, plans=plans, checked=bounds_checks, use_native=use_native, progress=progress)

    def _open(
        self,
        source: PlanSource,
        device: str | int | Device | Any,
        *,
        plans: int,
        checked: bool,
        use_native: bool | None,
        progress: Progress | None,
    ) -> None:
        """Everything that does not depend on where plans come from."""
        if plans < 1:
            raise InputError(f"a session keeps at least one plan, not {plans}")
        self._model = source
        self._caps = self._model.caps
        self._device = open_device(device)
        self._checked = checked
        self._use_native = use_native
        self._limit = plans
        self._account = MemoryAccount(self._caps.device_memory)
        self._staging = StagingPool(self._device, self._account)
        self._pool = WeightPool(
            self._device,
            self._model.sources,
            self._account,
            caps=self._caps,
            progress=(lambda done, total: progress("loading weights", done, total)) if progress else None,
        )
        self._ready: OrderedDict[ShapeKey, _Ready] = OrderedDict()
        self._last: _Ready | None = None
        self._lock = threading.RLock()
        self._closed = False
        self.stats = SessionStats()

    # What onnxruntime's sessions have

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[np.ndarray]:
        """Run the model; gives the outputs in the order of ``output_names`` (None: all, in the model's order).

        Raises :class:`InputError` for names, dtypes or shapes that do not fit the model; the session stays usable.
        """
        known = [port.name for port in self._model.header.outputs]
        names = list(output_names) if output_names is not None else known
        for name in names:
            if name not in known:
                raise InputError(f"the model has no output '{name}'", hint=f"its outputs are {', '.join(known)}")
        self._require_open()
        feeds = check_feeds(self._model.header, input_feed)
        shapes = {name: array.shape for name, array in feeds.items()}
        while True:
            ready = self._get(shapes)
            start = time.perf_counter()
            try:
                results = ready.executor.run(feeds, names)
            except ClosedError:
                self._require_open()
                continue  # another thread's new shape has evicted this plan in between
            self.stats.last_run_ms = (time.perf_counter() - start) * 1e3
            self.stats.keys[str(ready.key)].runs += 1
            return [results[name] for name in names]

    def get_inputs(self) -> list[NodeArg]:
        return [port.to_node_arg() for port in self._model.header.inputs]

    def get_outputs(self) -> list[NodeArg]:
        return [port.to_node_arg() for port in self._model.header.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        return [port.to_node_arg() for port in self._model.header.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        return self._model.header.metadata

    def get_providers(self) -> list[str]:
        return list(self._providers)

    # What they do not have

    @property
    def device(self) -> Device:
        return self._device

    @property
    def device_bytes(self) -> int:
        """Device memory that the session holds: weights, activations, inputs, outputs, staging."""
        return self._account.used

    def default_shapes(self) -> dict[str, tuple[int, ...]]:
        """Input shapes that are known without being given; empty if some sizes must be."""
        return dict(self._model.default_shapes() or {})

    def prepare(self, shapes: Mapping[str, Sequence[int]] | None = None) -> None:
        """Compile for these input shapes ahead of the first run; None takes the shapes that the model declares."""
        self._get(self._shapes(shapes))

    def report(self, shapes: Mapping[str, Sequence[int]] | None = None) -> dict[str, Any]:
        """What was compiled for the shapes that ran last, or for ``shapes``: the plan's description with times.

        JSON values; see :func:`~.inspection.describe_plan`.
        """
        ready = self._select(shapes)
        plan, stats = ready.compiled.plan, self.stats.keys[str(ready.key)]
        return {
            **describe_plan(plan),
            "shape_key": ready.key.to_json(),
            "plan_key": plan.key,
            "device": self._device.name,
            "device_bytes": {"weights": self._pool.bytes, "plan": ready.executor.device_bytes},
            "compile_ms": stats.compile_ms,
            "from_disk": stats.from_disk,
            "prepare_ms": stats.prepare_ms,
            "runs": stats.runs,
        }

    def profile(self, input_feed: Mapping[str, Any]) -> Profile:
        """Run once and time every call on the device."""
        self._require_open()
        feeds = check_feeds(self._model.header, input_feed)
        return self._get({name: array.shape for name, array in feeds.items()}).executor.profile(feeds)

    def plan_for(self, input_feed: Mapping[str, Any]) -> Plan:
        """The plan that a run with these inputs uses; compiled if it is new."""
        self._require_open()
        feeds = check_feeds(self._model.header, input_feed)
        return self._get({name: array.shape for name, array in feeds.items()}).compiled.plan

    def close(self) -> None:
        """Free everything on the device.  Closing twice is fine; a run afterwards raises :class:`ClosedError`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for ready in self._ready.values():
                ready.executor.close()
            self._ready.clear()
            self._last = None
            self._pool.close()
            self._staging.close()
            self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("the session is closed")

    def _shapes(self, shapes: Mapping[str, Sequence[int]] | None) -> Mapping[str, Sequence[int]]:
        if shapes is not None:
            return shapes
        declared = self._model.default_shapes()
        if declared is None:
            raise InputError(
                "the model does not declare all input sizes as numbers", hint="give the shapes of the inputs"
            )
        return declared

    def _select(self, shapes: Mapping[str, Sequence[int]] | None) -> _Ready:
        self._require_open()
        if shapes is None and self._last is not None:
            return self._last
        return self._get(self._shapes(shapes))

    def _get(self, shapes: Mapping[str, Sequence[int]]) -> _Ready:
        """The plan for these shapes with its executor: the one that is there, or a new one."""
        key = shape_key(self._model.header, shapes, self._model.dynamic)
        with self._lock:
            self._require_open()
            ready = self._ready.get(key)
            if ready is not None:
                self.stats.hits += 1
                self._ready.move_to_end(key)
            else:
                ready = self._make(key, {name: tuple(shape) for name, shape in shapes.items()})
            self.stats.last_key = str(key)
            self._last = ready
            return ready

    def _make(self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]]) -> _Ready:
        compiled = self._model.compile(key, shapes, self._device.profile)
        while len(self._ready) >= self._limit:  # before the new one takes memory
            self._ready.popitem(last=False)[1].executor.close()
            self.stats.evictions += 1
        start = time.perf_counter()
        executor = Executor(
            self._device,
            compiled.plan,
            self._pool,
            caps=self._caps,
            account=self._account,
            staging=self._staging,
            checked=self._checked or compiled.from_disk,
            use_native=self._use_native,
        )
        prepare_ms = (time.perf_counter() - start) * 1e3
        self.stats.misses += 1
        self.stats.disk_hits += compiled.from_disk
        self.stats.compile_ms += compiled.milliseconds
        self.stats.keys[str(key)] = KeyStats(compiled.milliseconds, compiled.from_disk, prepare_ms)
        self._ready[key] = ready = _Ready(key, compiled, executor)
        return ready


def _resolve_providers(wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The providers that can be had, in the caller's order; at least one, else :class:`InputError`."""
    if wanted is None:
        return ("wgpu",)
    if isinstance(wanted, str):
        raise InputError("providers is a list of names", hint=f"write ['{wanted}']")
    found = []
    for name in wanted:
        if name in WGPU_PROVIDER_NAMES:
            found.append("wgpu")
        elif name in ("cpu", "CPUExecutionProvider"):
            warnings.warn(f"provider '{name}' is dropped: this version runs on wgpu only", stacklevel=3)
        else:
            raise InputError(f"there is no provider '{name}'", hint=f"known are {', '.join(WGPU_PROVIDER_NAMES)}, cpu")
    if not found:
        raise InputError("none of the providers can be had", hint="use ['wgpu']")
    return tuple(dict.fromkeys(found))
