"""Devices: choice of the adapter, one shared device per adapter, pipelines, and wgpu's errors as ours."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ..plan.device_profile import KNOWN_FEATURES, WEB_LIMITS, DeviceProfile
from ..plan.errors import DeviceError, DeviceLimitError, DeviceLost, InputError
from ..plan.plan import Kernel
from . import native, wgsl_guard
from .forking import note_use, refuse_forked_process
from .loss import gate_of, tells_loss
from .subgroups import measure_subgroup_size

#: wgpu backends that have compute with WebGPU's guarantees; OpenGL does not
BACKENDS = ("Vulkan", "Metal", "D3D12")

_LOG = logging.getLogger("shaderloom.device")

_KINDS = {"CPU": "cpu", "DiscreteGPU": "discrete", "IntegratedGPU": "integrated"}
_PREFERENCE = ("discrete", "integrated", "unknown", "cpu")
_POWER_PREFERENCES = ("high-performance", "low-power")
_NO_ADAPTER_HINT = (
    "install a Vulkan driver (on Debian and Ubuntu: apt-get install mesa-vulkan-drivers) or a current GPU driver"
)


@dataclass(frozen=True)
class AdapterDescription:
    """One adapter as ``shaderloom devices`` shows it."""

    index: int
    name: str
    driver: str
    kind: str
    backend: str
    features: tuple[str, ...]
    limits: Mapping[str, int]

    @property
    def identity(self) -> str:
        return f"{self.name} {self.driver}".strip()


def _describe(index: int, adapter: Any) -> AdapterDescription:
    info = adapter.info
    return AdapterDescription(
        index=index,
        name=info["device"],
        driver=info["description"],
        kind=_KINDS.get(info["adapter_type"], "unknown"),
        backend=info["backend_type"],
        features=tuple(feature for feature in KNOWN_FEATURES if feature in adapter.features),
        limits={name: adapter.limits[name] for name in sorted(WEB_LIMITS) if name in adapter.limits},
    )


def _enumerate() -> list[tuple[AdapterDescription, Any]]:
    """Return the usable adapters, best first; the index counts in this order."""
    import wgpu  # needs a graphics library of the system: imported when a device is wanted, not before

    note_use()
    try:
        adapters = wgpu.gpu.enumerate_adapters_sync()
    except Exception as error:  # wgpu raises RuntimeError and OSError of several kinds here
        raise DeviceError(f"adapters cannot be listed: {_first_line(error)}", hint=_NO_ADAPTER_HINT) from error
    usable = [adapter for adapter in adapters if adapter.info["backend_type"] in BACKENDS]

    def rank(adapter: Any) -> tuple[int, int]:
        description = _describe(0, adapter)
        return _PREFERENCE.index(description.kind), -len(description.features)

    return [(_describe(index, adapter), adapter) for index, adapter in enumerate(sorted(usable, key=rank))]


def list_adapters() -> list[AdapterDescription]:
    """Return the usable adapters, best first: discrete, integrated, unknown, then software ones."""
    return [description for description, _ in _enumerate()]


def choose_adapter(
    choice: str | int | None, adapters: list[AdapterDescription], power_preference: str | None = None
) -> AdapterDescription:
    """Return the adapter that ``choice`` names: an index, or part of its name.

    None chooses the first, or an integrated one if ``power_preference`` is ``"low-power"`` and there is one.

    Raises :class:`DeviceError` if there is none.
    """
    if not adapters:
        raise DeviceError("no Vulkan, Metal or Direct3D 12 adapter was found", hint=_NO_ADAPTER_HINT)
    if choice is None or choice == "":
        if power_preference == "low-power":
            return next((adapter for adapter in adapters if adapter.kind == "integrated"), adapters[0])
        return adapters[0]
    text = str(choice)
    if text.isdigit():
        matching = [adapter for adapter in adapters if adapter.index == int(text)]
    else:
        matching = [adapter for adapter in adapters if text.lower() in f"{adapter.identity} {adapter.backend}".lower()]
    if not matching:
        names = "; ".join(f"{adapter.index}: {adapter.identity}" for adapter in adapters)
        raise DeviceError(f"no adapter matches '{text}'", hint=f"adapters by index: {names}")
    return matching[0]


@dataclass(frozen=True)
class Pipeline:
    """A compute pipeline with its explicit layout of bind group 0."""

    pipeline: Any
    layout: Any
    handle: Any  #: wgpu-native's pipeline handle


class PipelineHolder:
    """A weakly referenced holder of a pipeline: it lives as long as an executor that uses it."""

    __slots__ = ("__weakref__", "pipeline")

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline


class Device:
    """A wgpu device with its profile.  Share one; get it from :func:`open_device` or :meth:`from_wgpu`.

    ``gpu`` is the ``wgpu.GPUDevice``, ``profile`` has its kind, features and limits, and ``name`` is the adapter's.
    """

    def __init__(self, gpu: Any, profile: DeviceProfile, name: str) -> None:
        self.gpu = gpu
        self.profile = profile
        self.name = name
        self.queue = gpu.queue
        self._gate = gate_of(gpu)
        self._pipelines: weakref.WeakValueDictionary[str, PipelineHolder] = weakref.WeakValueDictionary()
        self._pending: dict[str, Future[PipelineHolder]] = {}  #: pipelines that a thread is creating
        self._lock = threading.Lock()
        self._probe_layout: Any = None
        self.own = False  #: whether it was requested here, with these arguments of :func:`open_device`
        self.web_limits = False
        self.features = True

    @classmethod
    def from_wgpu(cls, gpu: Any) -> Device:
        """Return the one wrapper of a ``wgpu.GPUDevice`` that the caller made and keeps; it is never destroyed."""
        with _wrapped_lock:
            device = _wrapped.get(id(gpu))
            if device is None or device.lost:
                device = _wrapped[id(gpu)] = cls._wrap(gpu)
        return device

    @classmethod
    def _wrap(cls, gpu: Any) -> Device:
        note_use()
        description = _describe(0, gpu.adapter)
        features = frozenset(feature for feature in KNOWN_FEATURES if feature in gpu.features)
        limits = {name: int(gpu.limits.get(name, default)) for name, default in WEB_LIMITS.items()}
        profile = _profile(gpu, description, features, limits)
        return cls(gpu, profile, description.identity)

    def sibling(self) -> Device:
        """Request another device of the same adapter with the same features and limits, for the caller alone.

        Raises :class:`DeviceError` if the adapter gives none.
        """
        profile = self.profile
        with self.guarded("requesting another device of the adapter"):
            gpu = self.gpu.adapter.request_device_sync(
                required_features=list(self.gpu.features), required_limits=dict(profile.limits)
            )
        return Device(gpu, profile, self.name)

    def __repr__(self) -> str:
        return f"<Device {self.name}>"

    def guarded(self, what: str) -> _Guard:
        """Turn wgpu's errors in the block into :class:`DeviceError` (or :class:`DeviceLost`) about ``what``."""
        return _Guard(self, what)

    @property
    def lost(self) -> bool:
        """Whether the device was destroyed, or an operation reported its loss; it is never returned again then."""
        return self._gate.lost

    def check_lost(self) -> bool:
        """Ask the device whether it is lost: errors after a loss do not always name it."""
        return self._gate.check()

    def create_buffer(self, size: int, usage: int, label: str) -> Any:
        """Create a buffer of ``size`` > 0 bytes, a multiple of 4; ``usage`` is WebGPU's bits.

        Raises :class:`DeviceLimitError` beyond ``max-buffer-size``.
        """
        limit = self.profile.limit("max-buffer-size")
        if size > limit:
            raise DeviceLimitError(f"buffer '{label}' needs {size:,} bytes; the device's max-buffer-size is {limit:,}")
        with self.guarded(f"creating buffer '{label}' of {size:,} bytes"):
            return self.gpu.create_buffer(size=size, usage=usage, label=label)

    def create_module(self, wgsl: str, *, checked: bool, label: str, max_bytes: int) -> Any:
        """Create a shader module; with ``checked`` false without bounds checks, where wgpu-native can.

        ``checked=False`` is only for WGSL that this process has just generated.  Raises :class:`LimitError` for a text
        of more than ``max_bytes``, and for one that would exhaust the stack of the driver's parser.
        """
        wgsl_guard.check(wgsl, max_bytes, label)
        with self.guarded(f"compiling the shader of {label}"):
            if not checked:
                try:
                    return native.create_trusted_module(self.gpu, wgsl)
                except native.MissingSymbolError:
                    pass  # checks cost time and change no result
            return self.gpu.create_shader_module(code=wgsl, label=label)

    def pipeline(self, kernel: Kernel, *, checked: bool, max_wgsl_bytes: int) -> PipelineHolder:
        """Return the pipeline of a kernel, created once for equal text and bindings while a caller holds it.

        Threads may ask for pipelines at the same time; those that ask for the same one wait for the first.
        """
        label = f"kernel {kernel.id} ({kernel.template})"
        wgsl_guard.check_size(kernel.wgsl, max_wgsl_bytes, label)  # also of one that a session with another cap made
        accesses = ",".join(binding.access for binding in kernel.bindings)
        identity = f"{accesses}\n{checked}\n{kernel.wgsl}"
        key = hashlib.sha256(identity.encode()).hexdigest()
        with self._lock:
            holder = self._pipelines.get(key)
            if holder is not None:
                return holder
            pending = self._pending.get(key)
            if pending is None:
                mine = self._pending[key] = Future()
        if pending is not None:
            return pending.result()
        try:
            holder = PipelineHolder(self._create_pipeline(kernel, checked, max_wgsl_bytes, label))
        except BaseException as error:
            with self._lock:
                del self._pending[key]
            mine.set_exception(error)
            raise
        with self._lock:
            self._pipelines[key] = holder
            del self._pending[key]
        mine.set_result(holder)
        return holder

    def _create_pipeline(self, kernel: Kernel, checked: bool, max_wgsl_bytes: int, label: str) -> Pipeline:
        self._require(kernel)
        module = self.create_module(kernel.wgsl, checked=checked, label=label, max_bytes=max_wgsl_bytes)
        with self.guarded(f"creating the pipeline of {label}"):
            layout = self.gpu.create_bind_group_layout(
                entries=[
                    {"binding": index, "visibility": 4, "buffer": {"type": _BINDING_TYPES[binding.access]}}
                    for index, binding in enumerate(kernel.bindings)
                ]
            )
            pipeline = self.gpu.create_compute_pipeline(
                label=label,
                layout=self.gpu.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": "main"},
            )
        return Pipeline(pipeline, layout, pipeline._internal)

    def _require(self, kernel: Kernel) -> None:
        """Check what wgpu does not: features by name, workgroup memory, and the size of a workgroup."""
        missing = sorted(set(kernel.features) - self.profile.features)
        if missing:
            raise DeviceError(f"kernel {kernel.id} needs the features {', '.join(missing)}, which {self.name} lacks")
        limit = self.profile.limit("max-compute-workgroup-storage-size")
        if kernel.workgroup_bytes > limit:
            raise DeviceLimitError(
                f"kernel {kernel.id} needs {kernel.workgroup_bytes:,} bytes of workgroup memory; the limit is {limit:,}"
            )
        x, y, z = kernel.workgroup
        invocations = self.profile.limit("max-compute-invocations-per-workgroup")
        if x * y * z > invocations:
            raise DeviceLimitError(
                f"kernel {kernel.id} has {x * y * z} invocations a workgroup; the limit is {invocations}"
            )

    def probe(self, buffer: Any) -> None:
        """Raise :class:`DeviceError` if a storage buffer was destroyed or is mapped.

        wgpu has no question for the former, and ends the process when work that uses such a buffer is submitted; but it
        refuses to bind one.
        """
        if buffer.map_state != "unmapped":
            raise DeviceError("the buffer is mapped", hint="unmap it before it is used")
        with self.guarded("binding a buffer"):
            if self._probe_layout is None:
                entry = {"binding": 0, "visibility": 4, "buffer": {"type": "read-only-storage"}}
                self._probe_layout = self.gpu.create_bind_group_layout(entries=[entry])
            resource = {"buffer": buffer, "offset": 0, "size": 4}
            self.gpu.create_bind_group(layout=self._probe_layout, entries=[{"binding": 0, "resource": resource}])

    def submit(self, command_buffers: list[Any], what: str) -> int | None:
        """Submit command buffers; return a number for :meth:`wait` where wgpu-native numbers submissions, else None."""
        with self.guarded(what), self._gate.turn:
            self._gate.require()
            if native.AVAILABLE:
                return native.submit(self.queue, command_buffers)
            self.queue.submit(command_buffers)
            return None

    def submit_recorded(self, recorded: Any, what: str) -> int:
        """Submit and release what wgpu-native has recorded; return a number for :meth:`wait`."""
        try:
            with self.guarded(what), self._gate.turn:
                self._gate.require()
                return native.submit_recorded(self.queue, recorded)
        finally:
            native.release_recorded(recorded)

    def begin_reading(self) -> None:
        """Keep the device from being destroyed until :meth:`end_reading`; raise :class:`DeviceLost` if it is lost."""
        with self.guarded("reading a result"):
            self._gate.begin_reading()

    def end_reading(self) -> None:
        self._gate.end_reading()

    @property
    def spins(self) -> bool:
        """Whether waiting threads poll at first; a software driver needs their cores."""
        return self.profile.kind != "cpu"

    def wait(self, submission: int | None = None) -> None:
        """Block until a submission has finished, or without its number everything submitted so far."""
        refuse_forked_process()
        if native.AVAILABLE:
            native.wait(self.gpu, submission, spin=self.spins)
        else:
            marker = self.create_buffer(16, 0x1 | 0x8, "wait")
            with self.guarded("waiting"):
                marker.map_sync("READ")
            marker.destroy()


class _Guard:
    """See :meth:`Device.guarded`.  A class, because every run enters it several times."""

    __slots__ = ("_device", "_what")

    def __init__(self, device: Device, what: str) -> None:
        self._device = device
        self._what = what

    def __enter__(self) -> None:
        refuse_forked_process()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        import wgpu

        if not isinstance(error, (wgpu.GPUError, RuntimeError, AttributeError)):
            return
        device = self._device
        lost = tells_loss(error) or device.check_lost()
        if isinstance(error, AttributeError) and not lost:
            return  # else wgpu-py has no poller any more, because its device was destroyed
        message = _first_line(error)
        if lost:
            device._gate.lost = True
            raise DeviceLost(f"the device was lost while {self._what}: {message}") from error
        raise DeviceError(f"{self._what} failed: {message}") from error


_BINDING_TYPES = {"read": "read-only-storage", "read_write": "storage", "uniform": "uniform"}


def _first_line(error: BaseException) -> str:
    """Return the informative lines of a wgpu message, on one line of at most 800 characters."""
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and line not in ("Validation Error", "Caused by:")]
    return " / ".join(lines)[:800] or type(error).__name__


#: wrappers of the callers' devices by identity; a wrapper keeps its device, so an identity is not used twice meanwhile
_wrapped: weakref.WeakValueDictionary[int, Device] = weakref.WeakValueDictionary()
_wrapped_lock = threading.Lock()

_shared: dict[tuple[int, str, str, str], Device] = {}
_shared_lock = threading.Lock()


def open_device(
    choice: Any = None, *, power_preference: str | None = None, web_limits: bool = False, features: bool = True
) -> Device:
    """Return the process-wide device of an adapter; request it when it is first asked for.

    ``choice`` is an adapter's index or part of its name (see :func:`list_adapters`); None reads ``SHADERLOOM_ADAPTER``
    and without it takes the best by ``power_preference``: ``"high-performance"`` (the default) or ``"low-power"``.  A
    :class:`Device` is returned as it is, a ``wgpu.GPUDevice`` wrapped.  ``web_limits`` asks for WebGPU's default
    limits, as a browser grants them; ``features=False`` asks for no optional feature.

    Raises :class:`DeviceError` if no adapter fits or the request fails.
    """
    if power_preference not in (None, *_POWER_PREFERENCES):
        raise InputError(
            f"there is no power preference '{power_preference}'", hint=f"use {' or '.join(_POWER_PREFERENCES)}"
        )
    if isinstance(choice, Device):
        return choice
    if choice is not None and not isinstance(choice, (str, int)):
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
        found = _enumerate()
        listed = [description for description, _ in found]
        chosen = choose_adapter(choice, listed, power_preference)
        identity = (os.getpid(), f"#{chosen.index}", str(web_limits), str(features))
        device = _shared.get(identity)
        if device is None:
            device = _request(chosen, found[chosen.index][1], web_limits, features)
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


def _request(description: AdapterDescription, adapter: Any, web_limits: bool, features: bool) -> Device:
    limits = dict(WEB_LIMITS) if web_limits else {name: adapter.limits[name] for name in WEB_LIMITS}
    wanted = list(description.features) if features else []
    try:
        gpu = adapter.request_device_sync(required_features=wanted, required_limits=limits)
    except Exception as error:  # wgpu raises GPUError, RuntimeError and ValueError here
        raise DeviceError(f"{description.identity} gave no device: {_first_line(error)}") from error
    granted = {name: int(gpu.limits[name]) for name in WEB_LIMITS}
    profile = _profile(gpu, description, frozenset(wanted), granted)
    device = Device(gpu, profile, description.identity)
    device.own, device.web_limits, device.features = True, web_limits, features
    with _wrapped_lock:
        _wrapped[id(gpu)] = device
    return device


def _profile(gpu: Any, adapter: AdapterDescription, features: frozenset[str], limits: dict[str, int]) -> DeviceProfile:
    subgroup_size = 0
    if adapter.kind == "cpu" and "subgroup" in features:
        subgroup_size = measure_subgroup_size(gpu)
    return DeviceProfile(adapter.kind, adapter.identity, features, limits, subgroup_size, adapter.name)
