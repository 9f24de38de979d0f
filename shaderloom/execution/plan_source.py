"""Where the plans of a session come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ..model.compiled import Compiled, Progress
from ..model.feeds import Ranges, ShapeKey
from ..model.header import ModelHeader
from ..runtime.execution.weight_pool import ReadSource
from ..runtime.plan.caps import Caps
from ..runtime.plan.device_profile import DeviceProfile

if TYPE_CHECKING:
    from ..model.model import Model


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
        """Return the plan for a shape key, of which ``shapes`` are one instance."""
        ...

    def as_model(self) -> Model | None:
        """Return the model that plans are compiled from, which may run in several steps; None for a bundle."""
        ...

    def close(self) -> None: ...
