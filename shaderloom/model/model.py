"""A model and its plans: identity, header, disk cache, and compiler.  Needs no device.

The ONNX file is parsed only when a plan is neither in the session nor on the disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ..cache import DiskCache, compiler_version, open_cache
from ..compiler.compilation import Compilation
from ..compiler.options import DEFAULT_LIMITS, CompileOptions, Limits
from ..compiler.target import target_of
from ..compiler.tuning.config_choice import Choices
from ..log import COMPILE
from ..measurements.device_records import DeviceRecords
from ..notices import notify
from ..runtime.memory.data_loader import DataLoader, load_whole
from ..runtime.memory.source_files import SourceFiles
from ..runtime.plan.caps import Caps
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.dtypes import check_precision
from ..runtime.plan.plan import Kernel, Plan
from .calibration import Calibration
from .compiled import Compiled, Progress, ignore_progress
from .feeds import Dynamic, ShapeKey, canonical_dynamic, override_dimensions, read_dynamic, static_shapes
from .foreign import has_foreign_operators, refuse_foreign
from .header import ModelHeader
from .model_file import locate
from .random_inputs import random_feeds
from .self_tuning import SelfTuner, Tune

if TYPE_CHECKING:
    import numpy as np

    from ..compiler.frontend.model import ImportedModel
    from ..compiler.passes.lowering import CompilationUnit


class Model:
    """One ONNX model: a path, bytes, or a ``ModelProto``."""

    def __init__(
        self,
        model: Any,
        *,
        dynamic: Dynamic | None = None,
        caps: Caps | None = None,
        cache: bool | str | os.PathLike[str] | DiskCache = True,
        options: Mapping[str, Any] | None = None,
        external_data_loader: DataLoader | None = None,
        dimensions: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {}),
        progress: Progress | None = None,
        keep_refused: bool = False,
        tune: Tune | None = None,
    ) -> None:
        """Open a model.  ``options`` are passed to the compiler and must be JSON values; they are part of cache keys.

        ``dimensions`` fixes named dimensions of the inputs, by name and by denotation.  With an
        ``external_data_loader`` nothing is kept on the disk: whether the data has changed is unknowable.  With
        ``keep_refused`` nodes that the compiler cannot read are left to another provider.  ``tune`` measures the
        configurations of each new shape (see docs/guide/tuning.md).

        Raises :class:`ModelError` or :class:`UnsupportedError` for a bad model and :class:`InputError` for bad options.
        """
        self.file = locate(model)
        self.caps = caps or Caps()
        self.options = dict(options or {})
        half = check_precision(self.options.get("precision", "float32")) == "float16"
        measures = "reached" not in self.options and (half or self.options.get("widen", "auto") == "auto")
        self._calibration = Calibration(half=half) if measures else None
        self._loader = external_data_loader
        self._cache = open_cache(cache) if external_data_loader is None and not has_foreign_operators() else None
        self._keep_refused = keep_refused
        self._records = DeviceRecords.of_user()
        self._tuner = None if tune is None else SelfTuner(tune, self._records)
        self.progress = progress or ignore_progress
        self._imported: ImportedModel | None = None
        self._identity = self.file.identify()
        self.header = self._open_header()
        self.header = override_dimensions(self.header, *dimensions)
        self.dynamic = read_dynamic(self.header, dynamic or {})
        self._recall_ranges()
        self.sources = SourceFiles(self.file.path, self.file.data, self.header.files, external_data_loader)

    def as_model(self) -> Model:
        """Return the model itself, from which its plans are compiled."""
        return self

    @property
    def imported(self) -> ImportedModel:
        """The parsed model; parsed on first access."""
        if self._imported is None:
            from ..compiler.frontend import load_model

            self.progress("reading the model", 0, 0)
            loader = self._loader
            load = None if loader is None else lambda *where: load_whole(loader, *where)
            self._imported = load_model(self.file.content, load, keep_refused=True, max_nodes=self.caps.nodes)
            if not self._keep_refused:
                refuse_foreign(self._imported)
        return self._imported

    def default_shapes(self) -> dict[str, tuple[int, ...]] | None:
        """Return the input shapes if the model declares all of them as numbers, else None."""
        return static_shapes(self.header)

    def compile(
        self,
        key: ShapeKey,
        shapes: Mapping[str, tuple[int, ...]],
        profile: DeviceProfile,
        on_kernel: Callable[[Kernel], None] | None = None,
    ) -> Compiled:
        """Return the plan for a shape key and a device profile: from the disk cache, else compiled and stored.

        ``shapes`` are the concrete input shapes that gave the key.  ``on_kernel`` is called with each kernel that is
        generated, as soon as its text is written.
        """
        compiled = self._compile(key, shapes, replace(self.compilation(profile), on_kernel=on_kernel))
        if self._tuner is not None and self._tuner.is_due(key, compiled.plan):
            if self._loader is not None or has_foreign_operators() or not profile.adapter:
                notify("this model cannot be tuned: another process could not read or compile it", once="tune foreign")
            elif self._tuner.measure(
                self.file.content,
                shapes,
                profile,
                dynamic=self.dynamic,
                options=self.compiler_options,
                progress=self.progress,
            ):
                compiled = self._compile(key, shapes, self.compilation(profile))
        return compiled

    @property
    def limits(self) -> Limits:
        """The compiler's limits under the caps of the model."""
        return Limits(
            tensor_elements=min(self.caps.tensor_elements, DEFAULT_LIMITS.tensor_elements),
            loop_steps=self.caps.loop_iterations,
            nodes=self.caps.nodes,
        )

    def compilation(self, profile: DeviceProfile, options: Mapping[str, Any] | None = None) -> Compilation:
        """Return the context of one compilation for a device, with the current measurements; ``options`` default to
        those of the model.

        Raises :class:`InputError` for bad options.
        """
        return Compilation(
            target_of(profile),
            CompileOptions.of(self.compiler_options if options is None else options),
            self.limits,
            Choices(self._records.for_device(profile)),
            progress=self.progress,
        )

    def unit(self, shapes: Mapping[str, Sequence[int]]) -> CompilationUnit:
        """Return the unit to compile for the input ``shapes``; parses the model.

        Raises :class:`InputError` for shapes that the model does not accept.
        """
        from ..compiler.binding.shape_binding import bind_shapes
        from ..compiler.driver import model_unit

        return model_unit(self.imported, bind_shapes(self.imported, shapes, self.dynamic))

    @property
    def compiler_options(self) -> dict[str, Any]:
        """The compiler options, with the magnitudes that calibration has recorded so far."""
        calibration = self._calibration
        if calibration is None or (calibration.is_new and not calibration.half):
            return self.options
        widen = {} if self.options.get("widen", "auto") == "off" else {"widen": "measured"}
        return {**self.options, **widen, "reached": calibration.option()}

    @property
    def calibration(self) -> Calibration | None:
        """What runs were seen to reach; None if no plan depends on that, or the options already state it."""
        return self._calibration

    def remember_ranges(self) -> None:
        """Store what was measured for a model that declares float16: sessions to come need not measure it again."""
        calibration = self._calibration
        if self._cache is not None and calibration is not None and not calibration.half:
            self._cache.put("ranges", self._range_entries(), calibration.option())

    def _recall_ranges(self) -> None:
        calibration = self._calibration
        if self._cache is None or calibration is None or calibration.half:
            return
        stored = self._cache.get("ranges", self._range_entries())
        if isinstance(stored, list):
            calibration.add({str(node): float(magnitude) for node, magnitude in stored})

    def _range_entries(self) -> dict[str, Any]:
        return {
            "model": self._identity,
            "files": self._file_states(),
            "compiler": compiler_version(),
            "options": self.options,
        }

    def calibrate_on_host(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        profile: DeviceProfile,
        feeds: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Calibrate without a device: run the float32 graph with numpy, on random inputs if there are no ``feeds``.

        Does nothing for a model whose plans do not depend on it.
        """
        if self._calibration is None:
            return
        from ..compiler.driver import compile_unit
        from ..compiler.passes.pipeline import LOWERED
        from ..compiler.precision.observed_range import measure_on_host

        self.progress("running with numpy for the ranges of values", 0, 0)
        if feeds is None:
            feeds = random_feeds(self.header, shapes)
        compilation = self.compilation(profile, self.reference_options)
        lowering = compile_unit(self.unit(shapes), compilation, until=LOWERED)
        if not self.half and not lowering.declares_halves:
            return
        self._calibration.add(measure_on_host(lowering.graph, lowering.fusion, feeds))

    @property
    def half(self) -> bool:
        """Whether the model is in half precision."""
        return self.options.get("precision") == "float16"

    @property
    def full_precision(self) -> dict[str, Any]:
        """The options without those of half precision."""
        return {name: value for name, value in self.options.items() if name not in ("precision", "reached")}

    @property
    def reference_options(self) -> dict[str, Any]:
        """Everything in float32 with the kernels of the model's plans.

        Half precision has too few bits for Winograd's tiles.
        """
        disabled = [*self.options.get("disabled_passes", ()), *(["winograd"] if self.half else [])]
        return {**self.full_precision, "disabled_passes": disabled, "widen": "all"}

    def compile_reference(
        self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], profile: DeviceProfile
    ) -> Compiled:
        """Return the plan of the same model in float32."""
        return self._compile(key, shapes, self.compilation(profile, self.reference_options))

    def _compile(self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], compilation: Compilation) -> Compiled:
        """Return the plan for a shape key, of which ``shapes`` are one instance."""
        entries = self._plan_entries(key, compilation)
        return self._find_or_compile(f"compiling for {key}", entries, lambda: self.unit(shapes), compilation)

    def compile_stage(self, stage: Mapping[str, Any], unit: CompilationUnit, compilation: Compilation) -> Compiled:
        """Return the plan of the stage that ``stage``, JSON values, identifies among those of the model."""
        entries = {**self._plan_entries(ShapeKey(()), compilation), "stage": stage}
        return self._find_or_compile("compiling a stage", entries, lambda: unit, compilation)

    def _find_or_compile(
        self,
        what: str,
        entries: Mapping[str, Any],
        unit_of: Callable[[], CompilationUnit],
        compilation: Compilation,
    ) -> Compiled:
        """Return the plan on the disk under ``entries``, or compile and store it; progress is reported as ``what``."""
        start = time.perf_counter()
        plan = self._stored_plan(entries, compilation.choices)
        from_disk = plan is not None
        if plan is None:
            from ..compiler.driver import compile_unit

            unit = unit_of()
            self.progress(what, 0, 0)
            plan = compile_unit(unit, compilation).plan
            self._store_plan(entries, compilation.choices, plan)
        milliseconds = (time.perf_counter() - start) * 1e3
        origin = "read from the disk" if from_disk else "compiled"
        COMPILE.info("%s: %d kernels, %s in %.0f ms", what, len(plan.kernels), origin, milliseconds)
        trusted = not from_disk or (self._cache is not None and self._cache.is_authentic)
        return Compiled(plan, from_disk, milliseconds, trusted)

    def close(self) -> None:
        self.sources.close()

    def _open_header(self) -> ModelHeader:
        entries = {"model": self._identity, "compiler": compiler_version()}
        if self._cache is not None:
            stored = self._cache.get("header", entries)
            try:
                header = ModelHeader.from_json(stored) if stored is not None else None
            except ValueError:
                header = None
            if header is not None and header.is_current(self.file.path) and (self._keep_refused or not header.refused):
                return header
        header = ModelHeader.of(self.imported)
        if self._cache is not None:
            self._cache.put("header", entries, header.to_json())
        return header

    def _plan_entries(self, key: ShapeKey, compilation: Compilation) -> dict[str, Any]:
        """Return everything that determines a plan, except measurements, as JSON values."""
        return {
            "model": self._identity,
            "files": self._file_states(),
            "shapes": key.to_json(),
            "dynamic": canonical_dynamic(self.dynamic),
            "profile": compilation.target.profile.to_json(),
            "compiler": compiler_version(),
            "options": asdict(compilation.options),
            "limits": asdict(compilation.limits),
        }

    def _file_states(self) -> dict[str, list[int]]:
        return {name: [state.size, state.modified_ns, state.inode] for name, state in sorted(self.header.files.items())}

    def _stored_plan(self, entries: Mapping[str, Any], choices: Choices) -> Plan | None:
        """Return the plan on the disk if today's measurements lead to the same decisions, else None."""
        stored = None if self._cache is None else self._cache.get("plan", entries)
        if not isinstance(stored, dict) or not isinstance(stored.get("decisions"), dict):
            return None
        if not choices.is_current(stored["decisions"]):
            return None
        try:
            return Plan.from_json(stored.get("plan"))
        except ValueError:
            return None

    def _store_plan(self, entries: Mapping[str, Any], choices: Choices, plan: Plan) -> None:
        if self._cache is not None:
            self._cache.put("plan", entries, {"decisions": choices.decision_log(), "plan": plan.to_json()})
