"""A model and its plans: file, header, options, disk cache, and compiler.  Needs no device.

The ONNX file is parsed only when a plan is neither in the session nor on the disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..cache import DiskCache, open_cache
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
from ..runtime.plan.errors import ShaderloomError, ShapeError
from ..runtime.plan.garbage import RareCollections
from ..runtime.plan.plan import Kernel, Plan
from .compiled import CompiledPlan, Progress, ignore_progress
from .feeds import Dynamic, ShapeKey, canonical_dynamic, override_dimensions, read_dynamic, shape_key, static_shapes
from .foreign import has_foreign_operators, refuse_foreign
from .header import ModelHeader
from .model_cache import ModelCache
from .model_file import locate
from .options import ModelOptions
from .random_inputs import random_feeds
from .self_tuning import SelfTuner, Tune
from .size_memory import SizeMemory, read_mode

if TYPE_CHECKING:
    import numpy as np

    from ..compiler.binding.shape_binding import BoundShapes
    from ..compiler.driver import BegunUnit
    from ..compiler.frontend.model import ImportedModel
    from ..compiler.passes.lowering import CompilationUnit


class Model:
    """One ONNX model: a path, bytes, or a ``ModelProto``."""

    def __init__(
        self,
        model: Any,
        *,
        dynamic: Dynamic | str | None = None,
        caps: Caps | None = None,
        cache: bool | str | os.PathLike[str] | DiskCache = True,
        options: Mapping[str, Any] | None = None,
        external_data_loader: DataLoader | None = None,
        dimensions: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {}),
        progress: Progress | None = None,
        keep_refused: bool = False,
        tune: Tune | None = None,
    ) -> None:
        """Open a model.  ``dynamic`` has ranges of named dimensions, or is "auto" or "off": whether sizes that keep
        changing are opened (:mod:`.open_sizes`).

        ``options`` are passed to the compiler and must be JSON values; they are part of cache keys.

        ``dimensions`` fixes named dimensions of the inputs, by name and by denotation.  With an
        ``external_data_loader`` nothing is kept on the disk: whether the data has changed is unknowable.  With
        ``keep_refused`` nodes that the compiler cannot read are left to another provider.  ``tune`` measures the
        configurations of each new shape (see docs/guide/tuning.md).

        Raises :class:`ModelError` or :class:`UnsupportedError` for a bad model and :class:`InputError` for bad options.
        """
        self.file = locate(model)
        self.caps = caps or Caps()
        self.options = ModelOptions(options or {})
        self.calibration = self.options.calibration
        self._loader = external_data_loader
        is_cached = external_data_loader is None and not has_foreign_operators()
        self._cache = ModelCache(open_cache(cache) if is_cached else None, self.file, self.options)
        self._keep_refused = keep_refused
        self._records = DeviceRecords.of_user()
        self._tuner = None if tune is None else SelfTuner(tune, self._records)
        self.progress = progress or ignore_progress
        self._imported: ImportedModel | None = None
        self._begun: tuple[ShapeKey, BegunUnit] | None = None
        self.header = override_dimensions(self._open_header(), *dimensions)
        self._cache.files = self.header.files
        mode = read_mode(dynamic)
        self.dynamic = {} if dynamic is None or isinstance(dynamic, str) else read_dynamic(self.header, dynamic)
        #: with a tuner every shape has a plan of its own, for which configurations are measured
        self.sizes = SizeMemory(
            self._cache, self.options.stated, mode, self.dynamic, in_inputs=mode == "auto" and tune is None
        )
        ranges = None if self.calibration is None or self.calibration.half else self._cache.ranges(self.options.stated)
        if self.calibration is not None and ranges is not None:
            self.calibration.add(ranges)
        self.sources = SourceFiles(self.file.path, self.file.data, self.header.files, external_data_loader)

    def batch_plans(self) -> None:
        """Return None: rows are proven on the model's nodes."""

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
            load = None if loader is None else lambda *request: load_whole(loader, *request)
            self._imported = load_model(
                self.file.content,
                load,
                keep_refused=True,
                max_nodes=self.caps.nodes,
                logits=self.options.logits,
                check_indices=self.options.check_indices,
            )
            if not self._keep_refused:
                refuse_foreign(self._imported)
            if self.options.batch == "open":
                from ..compiler.batching.open_batch import open_batch

                self._imported = open_batch(self._imported, self.limits)
        return self._imported

    @property
    def weight_files(self) -> str:
        """Identifies the files of the weights; "" for a model without a file, or with a loader of the caller's."""
        return self.sources.identity

    def default_shapes(self) -> dict[str, tuple[int, ...]] | None:
        """Return the input shapes if the model declares all of them as numbers, else None."""
        return static_shapes(self.header)

    def key(self, shapes: Mapping[str, Sequence[int]]) -> ShapeKey:
        """Return the key of the plan for these input shapes; see :func:`shape_key` for what it raises."""
        return shape_key(self.header, shapes, self.dynamic).at_points(shapes, self.dynamic)

    def compile(
        self,
        key: ShapeKey,
        shapes: Mapping[str, tuple[int, ...]],
        profile: DeviceProfile,
        on_kernel: Callable[[Kernel], None] | None = None,
    ) -> CompiledPlan:
        """Return the plan for a shape key and a device profile: from the disk cache, else compiled and stored.

        ``shapes`` are the concrete input shapes that gave the key.  ``on_kernel`` is called with each kernel that is
        generated, as soon as its text is written.
        """
        is_open = key.opened is not None
        compilation = replace(self.compilation(profile, is_open=is_open), on_kernel=on_kernel)
        compiled = self._compile(key, shapes, compilation, self._take_begun(key, compilation))
        if self._tuner is not None and self._tuner.is_due(key, compiled.plan):
            if self._loader is not None or has_foreign_operators() or not profile.adapter:
                notify("this model cannot be tuned: another process could not read or compile it", once="tune foreign")
            elif self._tuner.measure(
                self.file.content,
                shapes,
                profile,
                dynamic=self.dynamic,
                options=self.options.current,
                progress=self.progress,
            ):
                compiled = self._compile(key, shapes, self.compilation(profile))
        return compiled

    def begin(
        self,
        wait_for_profile: Callable[[], DeviceProfile | None],
        is_enough: Callable[[], bool],
        on_kernel: Callable[[Kernel], None] | None = None,
    ) -> None:
        """Run the first passes for the declared shapes, until ``is_enough`` says so; :meth:`compile` runs the others.

        For a session that waits for its device, and only if the model had to be read: the plan of any other is on the
        disk.  ``wait_for_profile`` returns the profile of that device; None if there is nothing more to wait for.  Once
        ``is_enough`` says so ``on_kernel`` is called as by :meth:`compile`, which is left the kernels before that.
        What is refused is refused again by :meth:`compile`.
        """
        shapes = None if self._imported is None else self.default_shapes()
        profile = None if shapes is None else wait_for_profile()
        if shapes is None or profile is None:
            return
        from ..compiler.driver import begin_unit
        from ..compiler.symbolic.polynomial import Undecidable

        with suppress(ShaderloomError, Undecidable):
            key = self.key(shapes)
            compilation = replace(self.compilation(profile), on_kernel=on_kernel)
            self._begun = key, begin_unit(self.unit(shapes, key), compilation, is_enough)

    def _take_begun(self, key: ShapeKey, compilation: Compilation) -> BegunUnit | None:
        """Return what :meth:`begin` has begun, once, if it is of this key and would come out the same."""
        begun, self._begun = self._begun, None
        fits = begun is not None and begun[0] == key and begun[1].compilation.is_like(compilation)
        return begun[1] if begun is not None and fits else None

    @property
    def limits(self) -> Limits:
        """The compiler's limits under the caps of the model."""
        return Limits(
            tensor_elements=min(self.caps.tensor_elements, DEFAULT_LIMITS.tensor_elements),
            loop_iterations=self.caps.loop_iterations,
            nodes=self.caps.nodes,
        )

    def compilation(
        self, profile: DeviceProfile, options: Mapping[str, Any] | None = None, *, is_open: bool = False
    ) -> Compilation:
        """Return the context of one compilation for a device, with the current measurements; ``options`` default to
        those of the model.

        With ``is_open`` it is for open sizes: what holds for some of them only is refused.  Raises
        :class:`InputError` for bad options.
        """
        return Compilation(
            target_of(profile),
            CompileOptions.of(self.options.current if options is None else options),
            replace(self.limits, every_size=is_open),
            Choices(self._records.for_device(profile)),
            progress=self.progress,
        )

    def bind(self, shapes: Mapping[str, Sequence[int]], key: ShapeKey | None = None) -> BoundShapes:
        """Return the input ``shapes`` with symbols for the dimensions that ``key`` leaves open; parses the model.

        Without a ``key`` it is that of :meth:`key`.  Raises :class:`InputError` for shapes that the model does not
        accept.
        """
        from ..compiler.binding.shape_binding import bind_shapes

        key = key or self.key(shapes)
        bound = bind_shapes(self.imported, shapes, key.declared(self.dynamic))
        if key.opened is None:
            return bound
        dims = {name: key.opened.replaced(name, tuple(map(int, shape))) for name, shape in shapes.items()}
        open_dims = {name: tuple(map(key.opened.dim, sizes)) for name, sizes in dims.items()}
        return replace(bound, shapes=open_dims, symbols=key.opened.symbols)

    def unit(self, shapes: Mapping[str, Sequence[int]], key: ShapeKey | None = None) -> CompilationUnit:
        """Return the unit to compile for the input ``shapes`` and those like them; see :meth:`bind`."""
        from ..compiler.driver import model_unit

        return model_unit(self.imported, self.bind(shapes, key))

    def remember_ranges(self) -> None:
        """Store what was measured for a model that declares float16: sessions to come need not measure it again."""
        if self.calibration is not None and not self.calibration.half:
            self._cache.store_ranges(self.options.stated, self.calibration.option())

    def calibrate_on_host(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        profile: DeviceProfile,
        feeds: Mapping[str, np.ndarray] | None = None,
        key: ShapeKey | None = None,
    ) -> None:
        """Calibrate without a device: run the float32 graph with numpy, on random inputs if there are no ``feeds``.

        ``key`` is as for :meth:`bind`.  Does nothing for a model whose plans do not depend on it.
        """
        if self.calibration is None:
            return
        from ..compiler.driver import compile_unit
        from ..compiler.passes.pipeline import LOWERED
        from ..compiler.precision.observed_range import measure_on_host

        self.progress("running with numpy for the ranges of values", 0, 0)
        if feeds is None:
            feeds = random_feeds(self.header, shapes)
        compilation = self.compilation(profile, self.options.reference)
        lowering = compile_unit(self.unit(shapes, key), compilation, until=LOWERED)
        if not self.options.half and not lowering.declares_halves:
            return
        self.calibration.add(measure_on_host(lowering.graph, lowering.fusion, feeds))

    def compile_reference(
        self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], profile: DeviceProfile
    ) -> CompiledPlan:
        """Return the plan of the same model in float32."""
        is_open = key.opened is not None
        return self._compile(key, shapes, self.compilation(profile, self.options.reference, is_open=is_open))

    def _compile(
        self,
        key: ShapeKey,
        shapes: Mapping[str, tuple[int, ...]],
        compilation: Compilation,
        begun: BegunUnit | None = None,
    ) -> CompiledPlan:
        """Return the plan for a shape key, of which ``shapes`` are one instance."""
        if begun is not None:
            compilation = replace(begun.compilation, on_kernel=compilation.on_kernel)
        if self.dynamic and key != shape_key(self.header, shapes, self.dynamic):
            self.sizes.declared_points[str(key)] = None
        entries = self._plan_entries(key, compilation)
        return self._find_or_compile(
            f"compiling for {key}", entries, lambda: self.unit(shapes, key), compilation, begun
        )

    def compile_stage(self, stage: Mapping[str, Any], unit: CompilationUnit, compilation: Compilation) -> CompiledPlan:
        """Return the plan of the stage that ``stage``, JSON values, identifies among those of the model."""
        entries = {**self._plan_entries(ShapeKey(()), compilation), "stage": stage}
        return self._find_or_compile("compiling a stage", entries, lambda: unit, compilation)

    def _find_or_compile(
        self,
        what: str,
        entries: Mapping[str, Any],
        unit_of: Callable[[], CompilationUnit],
        compilation: Compilation,
        begun: BegunUnit | None = None,
    ) -> CompiledPlan:
        """Return the plan on the disk under ``entries``, or compile and store it; progress is reported as ``what``."""
        start = time.perf_counter()
        with RareCollections():
            plan = self._cache.plan(entries, compilation.choices)
            from_disk = plan is not None
            if plan is None:
                plan = self._compile_unit(what, unit_of, compilation, begun)
                self._cache.store_plan(entries, compilation.choices, plan)
        milliseconds = (time.perf_counter() - start) * 1e3
        origin = "read from the disk" if from_disk else "compiled"
        kernels = f"{len(plan.kernels)} kernel{'' if len(plan.kernels) == 1 else 's'}"
        COMPILE.info("%s: %s, %s in %.0f ms", what, kernels, origin, milliseconds)
        trusted = not from_disk or self._cache.is_authentic
        return CompiledPlan(plan, from_disk, milliseconds, trusted)

    def _compile_unit(
        self,
        what: str,
        unit_of: Callable[[], CompilationUnit],
        compilation: Compilation,
        begun: BegunUnit | None,
    ) -> Plan:
        from ..compiler.driver import compile_unit, finish_unit
        from ..compiler.symbolic.polynomial import Undecidable

        unit = unit_of() if begun is None else begun.lowering.unit
        self.progress(what, 0, 0)
        try:
            if begun is not None:
                return finish_unit(begun, compilation.on_kernel).plan
            return compile_unit(unit, compilation).plan
        except Undecidable as error:
            raise ShapeError(f"a choice of the compiler does not hold for all sizes: {error}") from error

    def close(self) -> None:
        self._begun = None
        self._cache.finish()
        self.sources.close()

    def _open_header(self) -> ModelHeader:
        header = self._cache.header()
        if header is None or (header.refused and not self._keep_refused):
            import_module("..compiler.driver", __package__)  # needed next, and now the device is being opened
            header = ModelHeader.of(self.imported)
            self._cache.store_header(header)
        return header

    def _plan_entries(self, key: ShapeKey, compilation: Compilation) -> dict[str, Any]:
        """Return everything besides the model and measurements that determines a plan, as JSON values."""
        return {
            "shapes": key.to_json(),
            "dynamic": canonical_dynamic(self.dynamic if key.opened is None else key.opened.ranges),
            "orders": [] if key.opened is None else [str(order) for order in key.opened.orders],
            "profile": compilation.target.profile.to_json(),
            "options": asdict(compilation.options),
            "limits": asdict(compilation.limits),
        }
