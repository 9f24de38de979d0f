"""What a session gets for a shape key, and how those who wait are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..runtime.execution.weight_pool import ReadSource
from ..runtime.plan.caps import Caps
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.plan import Plan
from .feeds import Ranges, ShapeKey
from .header import ModelHeader

if TYPE_CHECKING:
    from ..compiler.compilation import Compilation
    from ..compiler.frontend.model import ImportedModel
    from ..compiler.options import Limits
    from ..compiler.passes.lowering import CompilationUnit
    from .calibration import Calibration

#: Told what is being done, how much of it is done, and how much there is (0: not known)
Progress = Callable[[str, int, int], None]


def ignore_progress(what: str, done: int, total: int) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A plan, where it came from, and how long it took to get in milliseconds.

    ``from_disk``: this process has not generated the shaders, so they keep their bounds checks.
    """

    plan: Plan
    from_disk: bool
    milliseconds: float


class PlanSource(Protocol):
    """What a session runs: an ONNX model with the compiler behind it, or a bundle."""

    @property
    def header(self) -> ModelHeader: ...

    @property
    def dynamic(self) -> Ranges: ...

    @property
    def caps(self) -> Caps: ...

    @property
    def sources(self) -> ReadSource:
        """Gives the bytes of the weights."""
        ...

    @property
    def progress(self) -> Progress:
        """Called with what takes long: reading, compiling, loading weights."""
        ...

    def default_shapes(self) -> Mapping[str, tuple[int, ...]] | None:
        """Input shapes that need not be given; None if some sizes must be."""
        ...

    def compile(self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], profile: DeviceProfile) -> Compiled:
        """The plan for a shape key, of which ``shapes`` are one instance."""
        ...

    def as_model(self) -> ModelSource | None:
        """Return the model that plans are compiled from; None if there are only plans, as in a bundle."""
        ...

    def close(self) -> None: ...


class ModelSource(PlanSource, Protocol):
    """An ONNX model with the compiler behind it: it may also run in several steps."""

    @property
    def path(self) -> Path | None:
        """The file of the model; None if it is bytes."""
        ...

    @property
    def data(self) -> bytes | None: ...

    @property
    def imported(self) -> ImportedModel:
        """The parsed model; parsed when first asked for."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the compiler."""
        ...

    @property
    def compiler_options(self) -> Mapping[str, Any]:
        """The options with what a calibration has measured so far."""
        ...

    @property
    def full_precision(self) -> Mapping[str, Any]:
        """The options without those of half precision."""
        ...

    @property
    def reference_options(self) -> Mapping[str, Any]:
        """The options of full precision with the kernels of half precision."""
        ...

    @property
    def half(self) -> bool:
        """Whether the model is in half precision."""
        ...

    @property
    def calibration(self) -> Calibration | None:
        """What plans in half precision rest on; None where nothing has to be measured."""
        ...

    @property
    def limits(self) -> Limits:
        """The compiler's limits under the caps of the model."""
        ...

    def unit(self, shapes: Mapping[str, Sequence[int]]) -> CompilationUnit:
        """Return what is compiled for the input ``shapes``."""
        ...

    def compilation(self, profile: DeviceProfile, options: Mapping[str, Any] | None = None) -> Compilation:
        """Return the context of one compilation for a device; ``options`` default to those of the model."""
        ...

    def compile_reference(
        self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], profile: DeviceProfile
    ) -> Compiled:
        """Return the plan for a shape key in full precision, for a calibration."""
        ...

    def compile_stage(self, stage: Mapping[str, Any], unit: CompilationUnit, compilation: Compilation) -> Compiled:
        """Return the plan of the stage that ``stage``, JSON values, tells from every other one of the model."""
        ...
