"""The source of a session's plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..model.compiled import CompiledPlan, Progress
from ..model.feeds import Ranges, ShapeKey
from ..model.header import ModelHeader
from ..runtime.execution.weight_pool import ReadSource
from ..runtime.plan.batch_ports import BatchPorts
from ..runtime.plan.caps import Caps
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.errors import InputError
from ..runtime.plan.plan import Kernel
from ..runtime.plan.record import record

if TYPE_CHECKING:
    from ..model.model import Model


class PlanSource(Protocol):
    """The source of a session's plans: an ONNX model with its compiler, or a bundle."""

    @property
    def header(self) -> ModelHeader: ...

    @property
    def dynamic(self) -> Ranges: ...

    @property
    def caps(self) -> Caps: ...

    @property
    def sources(self) -> ReadSource:
        """Reads the bytes of the weights."""
        ...

    @property
    def weight_files(self) -> str:
        """Identifies the files of the weights, which sessions share on a device; "" where they may change."""
        ...

    @property
    def progress(self) -> Progress:
        """Called during long operations: reading, compiling, loading weights."""
        ...

    def key(self, shapes: Mapping[str, Sequence[int]]) -> ShapeKey:
        """Return the key of the plan for these input shapes; raise :class:`InputError` for shapes that do not fit."""
        ...

    def default_shapes(self) -> Mapping[str, tuple[int, ...]] | None:
        """Return the declared input shapes; None if some sizes are not static."""
        ...

    def compile(
        self,
        key: ShapeKey,
        shapes: Mapping[str, tuple[int, ...]],
        profile: DeviceProfile,
        on_kernel: Callable[[Kernel], None] | None = None,
    ) -> CompiledPlan:
        """Return the plan for a shape key, of which ``shapes`` are one instance.

        ``on_kernel`` is called with each kernel that is generated, as soon as its text is written.
        """
        ...

    def as_model(self) -> Model | None:
        """Return the model that plans are compiled from, which may run in several steps; None for a bundle."""
        ...

    def batch_plans(self) -> Sequence[BatchPlan] | None:
        """Return the plans of a bundle whose rows are stated to be independent; None for a model, which proves it."""
        ...

    def close(self) -> None: ...


@record
class BatchPlan:
    """Shapes of inputs that a plan of a bundle is for, sizes or names of ranges, and the axes of rows."""

    shapes: Mapping[str, tuple[int | str, ...]]
    rows: BatchPorts


def requested_shapes(source: PlanSource, shapes: Mapping[str, Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
    """Return ``shapes``, or for None those that the model declares; raise :class:`InputError` if it does not."""
    if shapes is None:
        shapes = source.default_shapes()
    if shapes is None:
        raise InputError("the model does not declare all input sizes as numbers", hint="give the shapes of the inputs")
    return {name: tuple(shape) for name, shape in shapes.items()}
