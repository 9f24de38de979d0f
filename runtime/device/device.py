"""A device: its profile, its pipelines, submissions, and wgpu's errors as ours."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from ..plan.device_profile import DEVICE_FEATURES, LANGUAGE_FEATURES, WEB_LIMITS, DeviceProfile
from ..plan.errors import DeviceError, DeviceLimitError, DeviceLost, PicklingError
from ..plan.plan import Kernel
from ..plan.record import record
from . import native, wgsl_guard
from .adapters import OPENGL, AdapterDescription, describe_adapter, first_line
from .forking import note_use, refuse_forked_process
from .loss import gate_of, tells_loss
from .subgroups import measure_subgroup_size
from .working_queue import WorkingQueue


@record(slots=False)
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

    def __init__(self, gpu: Any, profile: DeviceProfile, adapter: AdapterDescription) -> None:
        self.gpu = gpu
        self.profile = profile
        self.adapter = adapter
        self.name = adapter.identity
        if self.is_opengl:
            native.take_turns()
        self.queue = gpu.queue
        self.working_queue = WorkingQueue.of(gpu, self.name, is_opengl=self.is_opengl)
        self._gate = gate_of(gpu)
        self._pipelines: weakref.WeakValueDictionary[str, PipelineHolder] = weakref.WeakValueDictionary()
        self._pending: dict[str, Future[PipelineHolder]] = {}  #: pipelines that a thread is creating
        self._layouts: dict[tuple[str, ...], tuple[Any, Any]] = {}  #: of bind groups and pipelines, by accesses
        self._lock = threading.Lock()
        self._probe_layout: Any = None
        self.own = False  #: whether it was requested here, with these arguments of :func:`open_device`
        self.web_limits = False
        self.features = True

    def __getstate__(self) -> Any:
        """Raise :class:`PicklingError`: a device belongs to its process."""
        raise PicklingError(
            "a device cannot be pickled, or sent to another process", hint="open one there: shaderloom.open_device"
        )

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
        description = describe_adapter(0, gpu.adapter)
        features = frozenset((*(each for each in DEVICE_FEATURES if each in gpu.features), *LANGUAGE_FEATURES))
        limits = {name: int(gpu.limits.get(name, default)) for name, default in WEB_LIMITS.items()}
        profile = _profile(gpu, description, features, limits)
        return cls(gpu, profile, description)

    def sibling(self) -> Device:
        """Request another device of the same adapter with the same features and limits, for the caller alone.

        Raises :class:`DeviceError` if the adapter gives none.
        """
        profile = self.profile
        with self.guarded("requesting another device of the adapter"):
            gpu = self.gpu.adapter.request_device_sync(
                required_features=list(self.gpu.features), required_limits=dict(profile.limits)
            )
        return Device(gpu, profile, self.adapter)

    def __repr__(self) -> str:
        return f"<Device {self.name}>"

    @property
    def is_opengl(self) -> bool:
        """Whether wgpu reaches the device through OpenGL: one thread at a time, without bounds checks."""
        return self.adapter.backend == OPENGL

    @property
    def checks_bounds(self) -> bool:
        """Whether shaders can be compiled with bounds checks."""
        return self.adapter.checks_bounds

    @property
    def keeps_checks(self) -> bool:
        """Whether trusted shaders keep bounds checks unless a caller decides: those of software drivers cost little."""
        return self.profile.is_software and self.checks_bounds

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

        Raises :class:`LimitError` beyond ``max-buffer-size``.
        """
        limit = self.profile.limit("max-buffer-size")
        if size > limit:
            raise DeviceLimitError(f"buffer '{label}' needs {size:,} bytes; the device's max-buffer-size is {limit:,}")
        with self.guarded(f"creating buffer '{label}' of {size:,} bytes"):
            return self.gpu.create_buffer(size=size, usage=usage, label=label)

    def bind_group(self, layout: Any, ranges: Sequence[tuple[Any, int, int]]) -> Any:
        """Bind buffers, each with an offset and a size in bytes, in the order of the bindings."""
        if native.AVAILABLE:
            return native.create_bind_group(self.gpu, layout, ranges)
        entries = [
            {"binding": index, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for index, (buffer, offset, size) in enumerate(ranges)
        ]
        return self.gpu.create_bind_group(layout=layout, entries=entries)

    def create_module(self, wgsl: str, *, checked: bool, label: str, max_bytes: int) -> Any:
        """Create a shader module; with ``checked`` false without bounds checks, where wgpu-native can.

        ``checked=False`` is only for WGSL that this process has just generated.  Raises :class:`LimitError` for a text
        of more than ``max_bytes``, and for one that would exhaust the stack of the driver's parser, and
        :class:`DeviceError` for checks that the device cannot have (:attr:`checks_bounds`).
        """
        if checked and not self.checks_bounds:
            raise DeviceError(
                f"the shader of {label} must have bounds checks, and wgpu compiles none for OpenGL ({self.name})",
                hint="use a Vulkan, Metal or Direct3D 12 adapter (shaderloom devices), or say that you trust the "
                "shaders: a bundle with trust=True (--trust), a model without bounds_checks=True",
            )
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
            group_layout, layout = self._layouts_of(tuple(binding.access for binding in kernel.bindings))
            pipeline = self.gpu.create_compute_pipeline(
                label=label, layout=layout, compute={"module": module, "entry_point": "main"}
            )
        return Pipeline(pipeline, group_layout, pipeline._internal)

    def _layouts_of(self, accesses: tuple[str, ...]) -> tuple[Any, Any]:
        """Return the layouts of bind group 0 and of pipelines, made once: threads that compile take turns for less."""
        layouts = self._layouts.get(accesses)
        if layouts is None:
            group_layout = self.gpu.create_bind_group_layout(
                entries=[
                    {"binding": index, "visibility": 4, "buffer": _BINDING_TYPES[access]}
                    for index, access in enumerate(accesses)
                ]
            )
            layouts = group_layout, self.gpu.create_pipeline_layout(bind_group_layouts=[group_layout])
            layouts = self._layouts.setdefault(accesses, layouts)
        return layouts

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

    def submit(self, command_buffers: list[Any], what: str) -> None:
        """Submit command buffers; errors are about ``what``."""
        self._submit(native.submit if native.AVAILABLE else type(self.queue).submit, command_buffers, what)

    def submit_recorded(self, recorded: Any, what: str, *, may_last: bool = True) -> None:
        """Submit and release what wgpu-native has recorded; without ``may_last`` its kernels are known to be short."""
        try:
            self._submit(native.submit_recorded, recorded, what, may_last)
        finally:
            native.release_recorded(recorded)

    def _submit(self, submit: Callable[[Any, Any], None], commands: Any, what: str, may_last: bool = True) -> None:
        working = self.working_queue
        with self.guarded(what):
            start = 0.0 if working is None else working.wait()
            with self._gate.turn:
                self._gate.require()
                submit(self.queue, commands)
        if working is not None:
            working.note_submission(start, may_last=may_last)

    def begin_reading(self) -> None:
        """Keep the device from being destroyed until :meth:`end_reading`; raise :class:`DeviceLost` if it is lost."""
        with self.guarded("reading a result"):
            self._gate.begin_reading()

    def end_reading(self) -> None:
        """Let the device be destroyed again, as far as this reader is concerned."""
        self._gate.end_reading()

    @property
    def busy_waits(self) -> bool:
        """Whether waiting threads poll at first; a software driver needs their cores."""
        return not self.profile.is_software

    def wait(self) -> None:
        """Block until everything submitted so far has finished."""
        refuse_forked_process()
        if native.AVAILABLE:
            native.wait(self.gpu, spin=self.busy_waits)
        else:
            marker = self.create_buffer(16, 0x1 | 0x8, "wait")
            with self.guarded("waiting"):
                marker.map_sync("READ")
            marker.destroy()


class _Guard:
    """Turns wgpu's errors in a block into errors of the device.  A class, because every run enters it several times."""

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
        message = first_line(error)
        if lost:
            device._gate.lost = True
            raise DeviceLost(f"the device was lost while {self._what}: {message}") from error
        raise DeviceError(f"{self._what} failed: {message}") from error


_BINDING_TYPES = {
    "read": {"type": "read-only-storage"},
    "read_write": {"type": "storage"},
    "uniform": {"type": "uniform"},
    "iteration": {"type": "uniform", "has_dynamic_offset": True},
}


#: wrappers of the callers' devices by identity; a wrapper keeps its device, so an identity is not used twice meanwhile
_wrapped: weakref.WeakValueDictionary[int, Device] = weakref.WeakValueDictionary()
_wrapped_lock = threading.Lock()


#: Called with the profile that a device will have
OnProfile = Callable[[DeviceProfile], None]


def request_device(
    description: AdapterDescription,
    adapter: Any,
    *,
    web_limits: bool,
    features: bool,
    on_profile: OnProfile | None = None,
) -> Device:
    """Request a device with all limits and features of an adapter, or WebGPU's default limits, or no feature.

    ``on_profile`` is called before that with its profile, unless some of it is measured.  Raises :class:`DeviceError`
    if the adapter gives none.
    """
    limits = dict(WEB_LIMITS) if web_limits else {name: int(adapter.limits[name]) for name in WEB_LIMITS}
    wanted = list(description.features) if features else []
    offered = frozenset((*wanted, *LANGUAGE_FEATURES)) if features else frozenset()
    if on_profile is not None and not _is_measured(description, offered):
        on_profile(_profile(None, description, offered, limits))
    try:
        gpu = adapter.request_device_sync(required_features=wanted, required_limits=limits)
    except Exception as error:  # wgpu raises GPUError, RuntimeError and ValueError here
        raise DeviceError(f"{description.identity} gave no device: {first_line(error)}") from error
    granted = {name: int(gpu.limits[name]) for name in WEB_LIMITS}
    profile = _profile(gpu, description, offered, granted)
    device = Device(gpu, profile, description)
    device.own, device.web_limits, device.features = True, web_limits, features
    with _wrapped_lock:
        _wrapped[id(gpu)] = device
    return device


def _is_measured(adapter: AdapterDescription, features: frozenset[str]) -> bool:
    """Return whether a part of the profile is measured on the device."""
    return adapter.is_software and "subgroup" in features


def _profile(gpu: Any, adapter: AdapterDescription, features: frozenset[str], limits: dict[str, int]) -> DeviceProfile:
    subgroup_size = measure_subgroup_size(gpu) if _is_measured(adapter, features) else 0
    return DeviceProfile(adapter.kind, adapter.identity, features, limits, subgroup_size, adapter.name)
