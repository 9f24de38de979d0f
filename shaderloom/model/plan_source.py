"""What a session gets for a shape key, and how those who wait are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..runtime.execution.weight_pool import ReadSource
from ..runtime.plan.caps import Caps
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.plan import Plan
from .feeds import Ranges, ShapeKey
from .header import ModelHeader

if TYPE_CHECKING:
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
    def calibration(self) -> Calibration | None:
        """What plans in half precision need to have seen; None where plans need nothing."""
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

    def compile_reference(
        self, key: ShapeKey, shapes: Mapping[str, tuple[int, ...]], profile: DeviceProfile
    ) -> Compiled:
        """The same plan in full precision, for the calibration; asked for only where there is one."""
        ...

    def close(self) -> None: ...
