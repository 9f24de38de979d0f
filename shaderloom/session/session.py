"""The session: a model with its providers, under onnxruntime's names and with additions of this project."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..api.arguments import entries, instance
from ..api.async_run import AsyncRunner
from ..api.options import RunOptions, SessionOptions
from ..api.providers import initialise_providers, parse_providers
from ..api.values import InputValue, OutputValue
from ..cpu.provider import CpuEngine
from ..execution.engine import WgpuEngine
from ..execution.plan_bound import DEFAULT_PLANS
from ..execution.plan_source import PlanSource
from ..execution.resources import DeviceResources, SessionStats
from ..execution.steps import StepProgram
from ..model.compiled import Progress
from ..model.feeds import Dynamic, check_feeds, static_shapes
from ..model.foreign import refuse_foreign
from ..model.header import ModelHeader
from ..model.model_file import locate
from ..plans.describe import describe_plan
from ..plans.placement import Placement
from ..runtime.device.device import Device
from ..runtime.device.forking import is_forked
from ..runtime.device.opening import open_device, reopen_device
from ..runtime.execution.attachment import check_locations
from ..runtime.execution.ports import Feed
from ..runtime.execution.timing import Profile
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.caps import Caps
from ..runtime.plan.checked_operand import INDEX_RANGES
from ..runtime.plan.errors import ClosedError, InputError, PicklingError, RunError, UnsupportedError
from ..runtime.plan.garbage import RareCollections
from ..runtime.plan.manual import manual_page
from ..runtime.plan.plan import Plan
from .index_guard import check_ranges, warn_of_unchecked
from .opening_device import OpeningDevice, warn_of_software
from .ort_session import OrtSession
from .output_targets import fill, output_targets
from .provider_chain import ProviderChain
from .run_trace import RunTrace

if TYPE_CHECKING:
    from ..batching.batched_session import BatchedSession
    from ..batching.session_rows import SessionRows
    from ..cache import DiskCache
    from ..model.model import Model
    from ..model.self_tuning import Tune
    from ..runtime.memory.data_loader import DataLoader


class InferenceSession(OrtSession):
    """Run an ONNX model.  Thread-safe.  Close it, use it in ``with``, or let it be collected.

    ``path_or_bytes``
        a path, bytes or a ``ModelProto``.
    ``sess_options``
        a :class:`SessionOptions`.
    ``providers``
        in order of preference: ``"wgpu"`` (the default) runs on a device, ``"cpu"`` on the host.  One that fails to
        initialise is dropped with a warning that says why.  Inputs for which the first cannot run the model go to the
        next.
    ``provider_options``
        a dict for each provider; for wgpu ``device`` and ``power_preference``.
    ``device``
        part of an adapter's name, its index, a ``wgpu.GPUDevice``, or a :class:`Device`; None takes the best adapter.
    ``preferred_output_location``
        ``"cpu"`` for arrays (the default) or ``"gpu-buffer"`` for tensors; one for all outputs, or a dict by name.
    ``dynamic``
        ``"auto"``: from the third size of the inputs on one plan serves a range of them, where the model allows it
        (docs/guide/shapes.md); ``"off"``: every size has a plan of its own.  ``{"sequence": (1, 4096)}``: named
        dimensions that stay symbolic from the first run on, and no others; with a step, like
        ``{"height": (64, 512, 4)}``, those that are ``low``, ``low + step``, ... up to ``high``.
    ``batch``
        ``"open"``: a model that was exported for a batch of 1 takes any number of rows, where the compiler proves that
        every node allows it; its error names those that do not (docs/guide/batching.md).  On a device alone.
    ``caps``
        a :class:`Caps`: bounds on what the model may ask for.
    ``external_data_loader``
        a function of the location of a data file as the model writes it, an offset and a length in bytes, which reads
        external data in place of the file system.  It returns a buffer, an iterable of buffers, or an awaitable or
        asynchronous iterator of these.
    ``cache``
        True for the user's disk cache, a folder for another, False for none.
    ``plans``
        how many plans stay ready, those beyond 16 while all fit in 1 GiB; the least recently used is dropped, its
        weights stay.
    ``bounds_checks``
        True or False: whether shaders are compiled with run-time bounds checks.  None leaves them out on GPUs, where
        they cost up to a quarter of the time: the compiler keeps every access of generated code inside its operand.
        Shaders from a disk cache that is not authenticated, and those of bundles without ``trust``, always have them.
    ``use_native``
        False: run without the direct calls of wgpu-native; None uses them where the installed wgpu has them.
    ``options``
        a dict of options for the compiler.
    ``progress``
        a function that is called as ``progress(what, done, total)`` while the model is compiled.

    Raises the project's errors: :class:`ModelError`, :class:`UnsupportedError`, :class:`DeviceError`, ...
    """

    _engine: WgpuEngine | None = None
    _cpu: CpuEngine | None = None
    _warns_of_software = False  #: after the first result

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        device: str | int | Device | Any = None,
        preferred_output_location: str | Mapping[str, str] | None = None,
        dynamic: Dynamic | str = "auto",
        batch: str = "declared",
        caps: Caps | None = None,
        external_data_loader: DataLoader | None = None,
        cache: bool | str | os.PathLike[str] | DiskCache = True,
        plans: int = DEFAULT_PLANS,
        bounds_checks: bool | None = None,
        use_native: bool | None = None,
        options: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> None:
        settings = SessionOptions() if sess_options is None else instance("sess_options", sess_options, SessionOptions)
        severity = settings.log_severity_level
        wanted = parse_providers(providers, provider_options, severity=severity)
        file = locate(path_or_bytes)
        compiler = settings.compiler_options(options or {}, batch, [name for name, _ in wanted])
        self._logits = compiler.get("logits", "all")

        def make_wgpu(chosen: Mapping[str, Any]) -> None:
            with RareCollections(), OpeningDevice(device, chosen, severity) as opening:
                from ..model.model import Model  # imports what sessions of bundles do not need

                source = Model(
                    file.content,
                    dynamic=dynamic,
                    caps=caps,
                    cache=cache,
                    options=compiler,
                    dimensions=(settings.free_dimensions(), settings.free_denotations()),
                    external_data_loader=external_data_loader,
                    progress=progress,
                    keep_refused=any(name == "cpu" for name, _ in wanted),
                    tune=_tuning(settings.tuning_seconds()),
                )
                make = partial(WgpuEngine, source, plans=plans, checked=bounds_checks, use_native=use_native)
                self._engine = _begin(source, opening, make)
                self._warns_of_software = opening.is_unasked_software

        def make_cpu(chosen: Mapping[str, Any]) -> None:
            if external_data_loader is not None:
                raise UnsupportedError("the packages behind it read external data from files only")
            self._cpu = CpuEngine(*file, settings.onnxruntime_options(), logits=self._logits)

        ready = initialise_providers(wanted, {"wgpu": make_wgpu, "cpu": make_cpu}, severity=severity)
        header = self._read_header(settings)
        settings.report_without_effect(ready)
        self._complete(header, ready, settings, preferred_output_location)
        self._provider_options = dict(wanted)

    def _read_header(self, settings: SessionOptions) -> ModelHeader:
        """Return the model's header; raise :class:`UnsupportedError` if no provider of the session can read a node."""
        if self._engine is None:
            assert self._cpu is not None, "one provider is ready"
            return self._cpu.header(settings.free_dimensions(), settings.free_denotations())
        header, model = self._engine.source.header, self._engine.model
        if header.refused and self._cpu is None and model is not None:
            refuse_foreign(model.imported)
        return header

    def _open(
        self,
        source: PlanSource,
        device: str | int | Device | Any,
        *,
        plans: int,
        checked: bool | None,
        use_native: bool | None,
        preferred_output_location: str | Mapping[str, str] | None = None,
        open_program: Callable[[DeviceResources], StepProgram] | None = None,
    ) -> None:
        """Initialise a session whose plans do not come from a model file, in place of the constructor.

        ``open_program`` gives the program where there is no plan.
        """
        self._engine = WgpuEngine(
            source,
            open_device(device),
            plans=plans,
            checked=checked,
            use_native=use_native,
            open_program=open_program,
        )
        self._complete(source.header, ("wgpu",), SessionOptions(), preferred_output_location)

    def _complete(
        self,
        header: ModelHeader,
        providers: tuple[str, ...],
        options: SessionOptions,
        locations: str | Mapping[str, str] | None,
    ) -> None:
        self._header = header.public
        self._checked = header.checked
        warn_of_unchecked(header.unchecked, options.log_severity_level)
        self._providers = providers
        self._session_options = options
        self._output_names = [port.name for port in self._header.outputs]
        self._locations = check_locations(locations, dict.fromkeys(self._output_names))
        if self._engine is None and "gpu-buffer" in self._locations.values():
            reason = "outputs cannot stay on a device: the session runs on cpu alone"
            raise InputError(reason, hint="leave preferred_output_location out, or put wgpu first in providers")
        self._async = AsyncRunner()
        severity = options.log_severity_level
        self._trace = RunTrace() if options.enable_profiling else None
        self._chain = ProviderChain(providers, self._engine, self._cpu, severity=severity)
        self._closed = False
        self.stats = self._engine.stats if self._engine is not None else SessionStats()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, InputValue],
        run_options: RunOptions | None = None,
        *,
        outputs: Mapping[str, Tensor | np.ndarray | str] | None = None,
    ) -> list[OutputValue]:
        """Run the model; return the outputs in the order of ``output_names``; None or []: all, in the model's order.

        Inputs are arrays, tensors on the session's device, or :class:`OrtValue`.  ``outputs`` gives memory for some of
        the outputs (a :class:`Tensor` or an array, of the right dtype and shape), or another location.

        Waits for the device only if an output goes to the host.  Raises :class:`InputError` for names, dtypes or shapes
        that do not fit the model; the session stays usable.
        """
        names = entries(output_names or self._output_names, "output_names is a list of names")
        by_name = isinstance(outputs, dict) and isinstance(input_feed, dict)
        is_plain = run_options is None and not (self._closed or self._trace or self._checked)
        if by_name and outputs and is_plain and list(outputs) == names:
            replayed = self._chain.try_replay(input_feed, outputs)
            if replayed is not None:
                return [replayed[name] for name in names]
        targets, arrays = output_targets(names, outputs, self._locations)
        if self._closed:
            raise ClosedError("the session is closed")
        if run_options is not None and instance("run_options", run_options, RunOptions).terminate:
            raise RunError("the run options ask for termination", hint="set terminate to False, or pass others")
        feeds = self._feeds(input_feed)
        results = self._run_checked(feeds, targets)
        for name, array in arrays.items():
            results[name] = fill(name, array, results[name])
        return [results[name] for name in names]

    # Beyond onnxruntime

    @property
    def device(self) -> Device:
        """The device that the session runs on; raises :class:`UnsupportedError` if it runs on cpu alone."""
        return self._wgpu.device

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory that the session holds: weights, activations, inputs, outputs, staging."""
        return self._engine.resources.account.used if self._engine is not None else 0

    def synchronize(self) -> None:
        """Wait until the device has finished what was submitted."""
        if self._engine is not None:
            self._engine.synchronize()

    def recover(self, device: str | int | Device | Any = None) -> None:
        """Continue on a new device after :class:`DeviceLost`.  Tensors of the lost device are gone.

        ``device`` is as for the session; None opens the adapter of the lost device again.  The caller must replace a
        device that the caller made.
        """
        engine = self._wgpu
        engine.recover(reopen_device(engine.device) if device is None else open_device(device))

    def default_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each input as the model declares it; an empty dict if a size is not declared."""
        source = self._engine.source if self._engine is not None else None
        return dict((static_shapes(self._header) if source is None else source.default_shapes()) or {})

    def prepare(self, shapes: Mapping[str, Sequence[int]] | None = None) -> bool:
        """Compile for these input shapes ahead of the first run; None takes the shapes that the model declares.

        Return whether all of the model is compiled: False for one that runs in several steps, which its first run
        compiles, as they depend on its inputs.
        """
        return self._wgpu.prepare(shapes)

    def batched(self, max_batch: int = 32, max_wait_ms: float = 2.0, *, max_queue: int | None = None) -> BatchedSession:
        """Return a session that joins requests of equal shapes into runs of up to ``max_batch`` rows.

        A request waits at most ``max_wait_ms`` milliseconds for others; ``max_queue`` bounds the requests that wait.
        The batch is the leading open dimension that inputs and outputs have in common.  The compiler proves that rows
        do not depend on each other; :class:`UnsupportedError` names the nodes that mix rows (docs/guide/batching.md).
        """
        from ..batching.batched_session import BatchedSession

        return BatchedSession(self.as_rows(), max_batch, max_wait_ms, max_queue)

    def as_rows(self) -> SessionRows:
        """Return the session as batching sees it."""
        from ..batching.session_rows import SessionRows

        return SessionRows(self._header, self._engine, self._cpu, self._run_checked)

    def calibrate(self, input_feed: Mapping[str, InputValue]) -> None:
        """Measure the range of tensors on these inputs too, and keep in float32 what exceeds half precision.

        For sessions with ``precision="float16"``, whose first run does this with its own inputs; a range that was
        measured for one input shape counts for all.  Raises :class:`InputError` for a session in full precision.
        """
        self._wgpu.calibrate(self._feeds(input_feed))

    def report(self, shapes: Mapping[str, Sequence[int]] | None = None) -> dict[str, Any]:
        """Return as JSON values the plan for the shapes that ran last, or for ``shapes``, with its times."""
        ready = self._wgpu.select(shapes)
        plan = ready.compiled.plan
        return {
            **describe_plan(plan),
            "shape_key": ready.key.to_json(),
            "dynamic": self._wgpu.describe_sizes(),
            "plan_key": plan.key,
            "device": self._wgpu.device.name,
            "device_bytes": {"weights": self._wgpu.resources.pool.bytes, "plan": ready.executor.device_bytes},
            "compile_ms": ready.stats.compile_ms,
            "from_disk": ready.stats.from_disk,
            "prepare_ms": ready.stats.prepare_ms,
            "runs": ready.stats.runs,
        }

    def profile(self, input_feed: Mapping[str, InputValue]) -> Profile:
        """Run once and return the time of every call on the device, in order, over all plans of the model."""
        stages = [profile for _, profile in self.profile_stages(input_feed)]
        method = stages[0].method if stages else "timestamps"
        return Profile(method, tuple(call for stage in stages for call in stage.calls))

    def profile_stages(self, input_feed: Mapping[str, InputValue]) -> list[tuple[Plan, Profile]]:
        """Run once and return every plan that ran, in order, with the times of its calls."""
        return self._wgpu.profile(self._feeds(input_feed))

    def plan_for(self, input_feed: Mapping[str, InputValue]) -> Plan:
        """Return the plan that a run with these inputs uses; compile it if it is new."""
        feeds = self._feeds(input_feed)
        return self._wgpu.ready({name: feed.shape for name, feed in feeds.items()}).compiled.plan

    def placement(self) -> list[Placement]:
        """Return where each ONNX node ran last, or would run for the shapes that the model declares, and why.

        Nodes of branches and loop bodies are listed once they have run.  Raises :class:`InputError` before the first
        run of a model that does not declare all sizes.
        """
        if self._closed:
            raise ClosedError("the session is closed")
        if self._engine is None:
            assert self._cpu is not None, "a provider was initialised"
            return self._cpu.placement()
        return self._engine.placement()

    def close(self) -> None:
        """Free everything on the device but outputs that the caller holds.  Closing twice has no effect.

        Runs in flight end with their results or with :class:`ClosedError`, which every run afterwards raises.
        """
        self._closed = True
        self._async.close()
        self._chain.close()

    def __getstate__(self) -> Any:
        """Raise :class:`PicklingError`: a session belongs to a device and to its process.

        A derived class that opens the model again has a ``__getstate__`` of its own, and a ``__setstate__``.
        """
        reason = "a session cannot be pickled, or sent to another process: it holds a device"
        page = manual_page("guide/production.md")
        raise PicklingError(reason, hint=f"send the model's path, and open a session there ({page})")

    def __repr__(self) -> str:
        kind = type(self).__name__
        if not hasattr(self, "_closed"):  # construction has failed
            return f"<{kind} without a model>"
        nodes = self._header.nodes
        model = f"'{self._header.metadata.graph_name}' with {nodes:,} {'node' if nodes == 1 else 'nodes'}"
        if self._closed:
            return f"<{kind} of {model}, closed>"
        if self._engine is None:
            return f"<{kind} of {model} on the host>"
        plans = len(self.stats.keys)
        count = f"{plans} plan{'' if plans == 1 else 's'}"
        return f"<{kind} of {model} on {self._engine.device.name}: {count}, {self.device_bytes:,} bytes>"

    def _repr_html_(self) -> str:
        """Return what notebooks show: inputs and outputs, and a drawing of the kernels that ran last."""
        from .notebook import session_html

        if not hasattr(self, "_closed"):
            return session_html(repr(self), (), ())
        ports = (("inputs", self._header.inputs), ("outputs", self._header.outputs))
        plans = () if self._engine is None or self._closed else self._engine.plans()
        return session_html(repr(self), ports, plans)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def end_profiling(self) -> str:
        """Write the trace of a session with ``enable_profiling`` and return the name of its file, "" for any other.

        It has the time of every run, and after them one run with the inputs of the last in which every kernel is
        measured.  The name begins with ``profile_file_prefix``.  Runs from then on are not recorded.  Raises
        :class:`InputError` if the file cannot be written.
        """
        trace, self._trace = self._trace, None
        if trace is None:
            return ""
        stages = self.profile_stages(trace.feeds) if self._engine is not None and trace.feeds is not None else []
        return trace.write(self._session_options.profile_file_prefix, stages)

    def get_profiling_start_time_ns(self) -> int:
        """Return the time of the clock, in nanoseconds, from which the trace counts; 0 without one."""
        return 0 if self._trace is None else self._trace.start_ns

    # Internals

    def _run_checked(self, feeds: Mapping[str, Feed], targets: dict[str, Any]) -> dict[str, Any]:
        """Run on feeds that fit the model; return outputs by name, each in its target."""
        run = self._chain.run if self._trace is None else self._trace.timed(self._chain.run)
        checked = () if is_forked() else self._checked  # where the cpu checks them
        if checked:
            targets[INDEX_RANGES] = "cpu"
        results = run(feeds, targets)
        if checked:
            check_ranges(checked, results[INDEX_RANGES])
        if self._warns_of_software:
            self._warns_of_software = False
            is_decoder = self._logits in ("token", "first-token")
            warn_of_software(self.device, self._session_options.log_severity_level, is_decoder=is_decoder)
        return results

    @property
    def _wgpu(self) -> WgpuEngine:
        if self._closed:
            raise ClosedError("the session is closed")
        if self._engine is None:
            raise UnsupportedError(
                "the session has no device: it runs on cpu alone",
                hint="open it with providers=['wgpu', 'cpu']",
            )
        return self._engine

    def _feeds(self, input_feed: Mapping[str, InputValue]) -> dict[str, Feed]:
        if self._closed:
            raise ClosedError("the session is closed")
        return check_feeds(self._header, input_feed, host=self._cpu is not None)


def _begin(source: Model, opening: OpeningDevice, make: Callable[[Device], WgpuEngine]) -> WgpuEngine:
    """Compile the model as far as that goes while its device is opened; return the engine of both."""

    @cache
    def engine() -> WgpuEngine:
        return make(opening.result())

    source.begin(
        opening.wait_for_profile, lambda: opening.is_there, lambda kernel: engine().resources.add_kernel(kernel)
    )
    return engine()


def _tuning(seconds: float) -> Tune | None:
    """Return a tuner with a budget of ``seconds`` a shape; for 0 None, without importing the tuner."""
    if not seconds:
        return None
    from ..tuner.parent import within

    return within(seconds)
