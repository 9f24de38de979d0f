"""Ahead-of-time compilation of a model for given input shapes into a bundle."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from contextvars import Context, copy_context
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..batching.model_rows import ModelRows
from ..model.compiled import Progress
from ..model.feeds import Dynamic, ShapeKey, complete_shapes, shape_key
from ..model.header import ModelHeader, node_arg
from ..model.model import Model
from ..model.random_inputs import random_array
from ..notices import notify
from ..runtime.bundle.format import web_limit
from ..runtime.bundle.manifest import Manifest
from ..runtime.bundle.signing import Key, read_private_key
from ..runtime.bundle.writer import BundleWriter
from ..runtime.execution.requirements import check_limits, requirements
from ..runtime.plan.batch_ports import BatchPorts
from ..runtime.plan.device_profile import WEB, WEB_LIMITS, DeviceProfile
from ..runtime.plan.errors import DeviceLimitError, InputError, NotKnownError, ShapeError, UnsupportedError
from ..runtime.plan.plan import Plan
from ..runtime.plan.record import record
from ..runtime.plan.size_range import SizeRange, read_ranges
from ..version import __version__

if TYPE_CHECKING:
    from ..compiler.compilation import Compilation
    from ..compiler.options import Limits
    from ..compiler.passes.lowering import CompilationUnit

#: largest difference of a sample's outputs, relative to the largest expected magnitude
TOLERANCE = 1e-4
#: the same in half precision, where samples hold the results of full precision
HALF_TOLERANCE = 2e-2

#: Desktop GPUs through wgpu: default limits but for larger buffers
NATIVE = DeviceProfile(
    "discrete",
    "native",
    frozenset(),
    {**WEB_LIMITS, "max-buffer-size": 1 << 30, "max-storage-buffer-binding-size": 1 << 30},
)

#: The largest batch of the proof that rows are independent, which is about one row beside others
_MOST_ROWS = 64

#: The way out where a limit of the target is too small
_RAISE = "compile for smaller shapes, or for devices that allow more: limits={...}, or another target"

#: Said of stages in half precision that no run on the host has reached, with the inputs that were given
_UNMEASURED = (
    "no run of the given inputs reaches some stages of the program: they stay in full precision, since what they reach "
    "is not known"
)

TARGETS = ("web", "web-software", "native", "this-device")

Shapes = Mapping[str, Sequence[int]]


@record(slots=False)
class _Variant:
    """A shape key with one set of concrete shapes that it covers."""

    key: ShapeKey
    shapes: dict[str, tuple[int, ...]]


@record(slots=False)
class FurtherModel:
    """A further model of a bundle: a model, and what :func:`compile_bundle` takes for its own one."""

    model: Any
    shapes: Sequence[Shapes] = ()
    dynamic: Dynamic | None = None
    options: Mapping[str, Any] | None = None

    def open(self, progress: Progress | None) -> Model:
        sizes = "off" if self.dynamic is None else self.dynamic
        return Model(self.model, dynamic=sizes, cache=False, options=self.options, progress=progress)


def compile_bundle(
    model: Any,
    path: str | os.PathLike[str],
    *,
    shapes: Sequence[Shapes] = (),
    dynamic: Dynamic | str | None = None,
    ranges: Dynamic | None = None,
    target: str = "web",
    limits: Mapping[str, int] | None = None,
    software: bool | None = None,
    as_zip: bool = False,
    sample: bool = False,
    sample_inputs: Mapping[str, np.ndarray] | None = None,
    sign_key: Key | None = None,
    device: Any = None,
    precision: str = "float32",
    options: Mapping[str, Any] | None = None,
    models: Mapping[str, FurtherModel] | None = None,
    assets: Mapping[str, bytes] | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Write a bundle of ``model`` to ``path``.

    ``shapes`` has the input shapes of each shape key; inputs that one does not name keep the shape that the model
    declares.  ``target`` is one of :data:`TARGETS`; ``limits`` replaces limits of its devices, by WebGPU's names
    (``maxBufferSize``): the bundle may ask for as much.  ``software`` adds to each plan one with kernels for adapters
    that compute on the CPU, which runners take there; by default for the targets ``web`` and ``native``.  ``sample``
    runs the model for each key on ``device``, with ``sample_inputs`` where their shapes fit, else random ones, and
    keeps inputs and outputs.  ``sign_key``, a PEM file of an Ed25519 key or its bytes, signs the bundle.  ``models``
    are further models by name, in full precision; ``assets`` are files for whoever uses the bundle.

    A model that is no single plan becomes a program: its stages are compiled for ``ranges`` of the integers that a run
    reads, by the names of their values, (low, high) each; without one for 0 to the most that is possible or that fits
    the target.

    ``precision="float16"`` stores weights and tensors as halves where they fit: what they reach is found with numpy, on
    the same inputs (see docs/guide/precision.md).  So is what a model that declares float16 itself reaches on
    ``sample_inputs``; a bundle cannot find out when it runs.

    The bundle's bytes depend on the model, the shapes, the target, the options and, where halves are stored, the inputs
    alone, those of samples also on the device, and those for the target ``this-device`` on what was measured there.
    Raises the errors of the compiler; :class:`LimitError` names the kernel and the limit of the target.
    """
    report = progress or (lambda what, done, total: None)
    private_key = None if sign_key is None else read_private_key(sign_key)
    compiled_for = _limited(_profile(target, device), limits or {})
    if software is None:
        software = target in ("web", "native")
    chosen = {**(options or {}), **({} if precision == "float32" else {"precision": precision})}
    if chosen.get("check_indices"):
        reason = "a bundle has no means to check indices: where they are out of range, its kernels clamp them"
        raise InputError(reason, hint="leave check_indices to sessions")
    opened = Model(model, dynamic=dynamic, cache=False, options=chosen, progress=progress)
    try:
        variants = _variants(opened, shapes)
        measures = opened.calibration is not None and (opened.options.half or bool(sample_inputs))
        feeds = _sample_feeds(opened, variants, sample_inputs or {}) if sample or measures else []
        declared = read_ranges(ranges or {}, negative=True)
        if measures:
            profiles = [compiled_for, *([replace(compiled_for, kind="cpu")] if software else [])]  # kernels differ
            for variant, values in zip(variants, feeds, strict=True):
                _calibrate(opened, variant, profiles, declared, values)
        if sample_inputs and not sample and (opened.calibration is None or opened.calibration.is_new):
            raise InputError("inputs are for samples and for the ranges of halves", hint="add --sample or --f16")
        with BundleWriter(Path(path), as_zip=as_zip, sign_key=private_key, progress=report) as writer:
            plans: list[Plan] = []  # of all models, since a device serves all
            for name, further in (models or {}).items():
                with closing(further.open(progress)) as other:
                    bundled = _Bundled(other, compiled_for, writer, software=software, report=report)
                    for variant in _variants(other, further.shapes):
                        bundled.add(variant, {})
                    writer.finish_model(name, **_facts(other, bundled.plans, compiled_for, target))
                    plans += bundled.plans
            for name, content in (assets or {}).items():
                writer.add_asset(name, content)
            bundled = _Bundled(opened, compiled_for, writer, software=software, report=report)
            keys = [bundled.add(variant, declared) for variant in variants]
            if sample:
                _add_samples(opened, variants, keys, writer, feeds, device, report)
            return writer.finish(**_facts(opened, [*bundled.plans, *plans], compiled_for, target))
    finally:
        opened.close()


def _profile(target: str, device: Any) -> DeviceProfile:
    if target == "web":
        return WEB
    if target == "web-software":
        return replace(WEB, kind="cpu")
    if target == "native":
        return NATIVE
    if target == "this-device":
        from ..runtime.device.opening import open_device

        return open_device(device).profile
    raise InputError(f"there is no target '{target}'", hint=f"the targets are {', '.join(TARGETS)}")


def _limited(profile: DeviceProfile, limits: Mapping[str, int]) -> DeviceProfile:
    """Return the profile with other limits."""
    names = {web_limit(name): name for name in WEB_LIMITS if name.startswith("max-")}
    for name, value in limits.items():
        if name not in names:
            raise InputError(f"'{name}' is no limit of a device", hint=f"the limits are {', '.join(names)}")
        if not 0 < value < 1 << 53:
            raise InputError(f"{name} cannot be {value:,}", hint="give a positive number")
    return replace(profile, limits={**profile.limits, **{names[name]: value for name, value in limits.items()}})


def _variants(model: Model, shapes: Sequence[Shapes]) -> list[_Variant]:
    variants: list[_Variant] = []
    for variant in shapes or ({},):
        complete = complete_shapes(model.header, variant, model.dynamic)
        key = shape_key(model.header, complete, model.dynamic).without_single_sizes(model.dynamic)
        if any(key == other.key for other in variants):
            raise InputError(f"the shapes {key} are listed twice", hint="give them once")
        variants.append(_Variant(key, complete))
    return variants


def _calibrate(
    model: Model,
    variant: _Variant,
    profiles: Sequence[DeviceProfile],
    ranges: Mapping[str, SizeRange],
    feeds: Mapping[str, np.ndarray],
) -> None:
    """Measure with numpy what the tensors of a variant reach on ``feeds``, those of the kernels for each profile.

    Raises :class:`InputError` for feeds that leave the ranges of a program.
    """
    try:
        for profile in profiles:
            model.calibrate_on_host(variant.shapes, profile, feeds, variant.key)
        return
    except (NotKnownError, UnsupportedError):
        from ..compiler.driver import compile_unit
        from .program_calibration import HostStages, Unit, explore
        from .program_compile import compile_program

    units: dict[str, tuple[Unit, Context]] = {}
    compilations = [model.compilation(profile, model.options.reference) for profile in profiles]

    def compile_stage(unit: Unit, limits: Limits) -> tuple[Plan, Plan | None]:
        plan = compile_unit(unit(), replace(compilations[0], limits=limits)).plan
        units[plan.key] = unit, copy_context()
        return plan, None

    program, _ = compile_program(model, variant.key, variant.shapes, ranges, compile_stage)
    stages = HostStages(units, compilations)
    try:
        explore(program, stages, feeds)
    except InputError as error:
        error.hint = error.hint or "give inputs that the model takes: they show what halves must hold"
        raise
    if model.options.half or stages.declares_halves:
        assert model.calibration is not None, "the model has halves whose ranges are measured"
        model.calibration.add(stages.magnitudes)


class _Bundled:
    """The plans that are compiled into a bundle, for one target.

    With ``software`` there is one more of each, for adapters that compute on the CPU.
    """

    def __init__(
        self, model: Model, profile: DeviceProfile, writer: BundleWriter, *, software: bool, report: Progress
    ) -> None:
        self._model = model
        self._profile = profile
        self._writer = writer
        self._software = software
        self._report = report
        self.plans: list[Plan] = []
        self._rows: ModelRows | None = None

    def add(self, variant: _Variant, ranges: Mapping[str, SizeRange]) -> str:
        """Add the plan of a variant to the bundle, or else its program, and return its key.

        Raises the compiler's refusals of what is neither, and :class:`LimitError` for what needs another target.
        """
        model, key = self._model, variant.key
        self._report(f"compiling for {key}", 0, 0)
        try:
            plan, software = self._compile(lambda: model.unit(variant.shapes, key), model.limits, is_stage=False)
        except (NotKnownError, UnsupportedError):
            from .program_compile import compile_program

            program, plans = compile_program(model, key, variant.shapes, ranges, self._compile)
            self._writer.add_program(program, plans)
            self.plans += plans.values()
            return program.key
        if ranges:
            raise InputError("the model reads no integers in its runs, for which there are ranges")
        self._writer.add_plan(plan, key.to_json(), software, self._prove_rows(variant))
        self.plans += [plan] if software is None or software is plan else [plan, software]
        return plan.key

    def _prove_rows(self, variant: _Variant) -> BatchPorts | None:
        """Return the axes of rows that do not depend on each other; None if they may."""
        model = self._model
        try:
            if self._rows is None:
                self._rows = ModelRows(model.header, _MOST_ROWS, lambda: (model.imported, model.limits))
            return self._rows.prove(variant.shapes)
        except (ShapeError, UnsupportedError):
            return None

    def _compile(
        self, unit: Callable[[], CompilationUnit], limits: Limits, *, is_stage: bool = True
    ) -> tuple[Plan, Plan | None]:
        """Return the plan of a unit, of which each call of ``unit`` gives a new one, and that for software adapters."""
        profiles = [self._profile]
        if self._software and not self._profile.is_software:
            profiles.append(replace(self._profile, kind="cpu"))
        unmeasured = is_stage and any(self._is_unmeasured(profile, unit(), limits) for profile in profiles)
        options = self._model.options.reference if unmeasured else None
        plan, *others = (self._compile_for(profile, unit(), limits, options) for profile in profiles)
        return plan, plan if self._profile.is_software else others[0] if others else None

    def _compile_for(
        self, profile: DeviceProfile, unit: CompilationUnit, limits: Limits, options: Mapping[str, Any] | None
    ) -> Plan:
        from ..compiler.driver import compile_unit

        try:
            plan = compile_unit(unit, self._compilation(profile, limits, options)).plan
            check_limits(plan, profile)
        except DeviceLimitError as error:
            error.hint = error.hint or _RAISE
            raise
        return plan

    def _compilation(
        self, profile: DeviceProfile, limits: Limits, options: Mapping[str, Any] | None = None
    ) -> Compilation:
        """Return the context of a compilation whose weights the bundle gets."""
        compilation = self._model.compilation(profile, options)
        return replace(compilation, keep_weight=self._writer.add_weight, limits=limits)

    def _is_unmeasured(self, profile: DeviceProfile, unit: CompilationUnit, limits: Limits) -> bool:
        """Return whether a stage would store as halves what no run on the host has shown to fit."""
        calibration = self._model.calibration
        if calibration is None or not self._model.options.half:
            return False
        from ..compiler.driver import compile_unit
        from ..compiler.passes.pipeline import LOWERED

        storage = compile_unit(unit, self._compilation(profile, limits), until=LOWERED).storage
        assert storage is not None, "the model is in half precision"
        is_unmeasured = not calibration.covers(storage.facts.measured)
        if is_unmeasured:
            notify(_UNMEASURED, once="unmeasured stages of a bundle")
        return is_unmeasured


def _sample_feeds(
    model: Model, variants: Sequence[_Variant], inputs: Mapping[str, np.ndarray]
) -> list[dict[str, np.ndarray]]:
    """Choose inputs for each variant: the caller's arrays where their shapes match, else random ones."""
    generator = np.random.default_rng(0)
    ports = {port.name: node_arg(port) for port in (*model.header.inputs, *model.header.overridable)}
    for name in inputs:
        if name not in ports:
            raise InputError(f"the model has no input '{name}'", hint=f"its inputs are {', '.join(ports)}")
    return [
        {
            name: inputs[name]
            if name in inputs and inputs[name].shape == shape
            else random_array(ports[name], shape, generator)
            for name, shape in variant.shapes.items()
        }
        for variant in variants
    ]


def _add_samples(
    model: Model,
    variants: Sequence[_Variant],
    keys: Sequence[str],
    writer: BundleWriter,
    inputs: Sequence[dict[str, np.ndarray]],
    device: Any,
    report: Progress,
) -> None:
    """Run the model in full precision and store its inputs and outputs as samples."""
    from ..session.session import InferenceSession

    tolerance = HALF_TOLERANCE if model.options.half else TOLERANCE
    with InferenceSession(
        model.file.content,
        device=device,
        dynamic=model.dynamic,
        cache=False,
        options=model.options.full_precision,
        progress=report,
    ) as session:
        names = [port.name for port in session.get_outputs()]
        for variant, key, feeds in zip(variants, keys, inputs, strict=True):
            report(f"running a sample of {variant.key}", 0, 0)
            results = session.run(names, feeds)
            writer.add_sample(key, feeds, dict(zip(names, results)), tolerance)


def _facts(model: Model, plans: Sequence[Plan], profile: DeviceProfile, target: str) -> dict[str, Any]:
    """Return the manifest fields that are not derived from the bundle's files."""
    header: ModelHeader = model.header
    features = {feature for plan in plans for kernel in plan.kernels for feature in kernel.features}
    limits: dict[str, int] = {"min-storage-buffer-offset-alignment": profile.storage_alignment}
    for plan in plans:
        for name, amount in requirements(plan).items():
            limits[name] = max(limits.get(name, 0), amount)
    return {
        "producer": {"name": "shaderloom", "version": __version__},
        "target": target,
        "model": header.metadata.declared(),
        "nodes": header.nodes,
        "inputs": header.inputs,
        "overridable": header.overridable,
        "outputs": header.outputs,
        "dynamic": {name: sizes for name, sizes in model.dynamic.items() if sizes.low < sizes.high},
        "features": tuple(sorted(features)),
        "limits": limits,
        "decisions": _sources(plans),
    }


def _sources(plans: Sequence[Plan]) -> dict[str, int]:
    """Count decisions with more than one candidate by the source of their configuration."""
    decisions = [decision for plan in plans for decision in plan.facts.decisions if decision.candidates > 1]
    return dict(sorted(Counter(decision.source for decision in decisions).items()))
