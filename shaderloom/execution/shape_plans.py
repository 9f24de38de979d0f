"""Which plan serves input shapes: one of their own, or one for a range of sizes that keep changing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model.feeds import ShapeKey
from ..runtime.execution.ports import Feed
from ..runtime.plan.errors import DeviceLimitError, LimitError, ShapeError, UnsupportedError
from ..runtime.plan.garbage import RareCollections
from .calibrate import Calibrator
from .loaded_plans import LoadedPlan, LoadedPlans
from .open_shapes import OpenShapes
from .plan_source import PlanSource
from .resources import DeviceResources

Shapes = Mapping[str, Sequence[int]]


class ShapePlans:
    """The plans of a source that are loaded, and those that it compiles for new shapes.

    With a calibrator, which plans in half precision need, new plans are based on what it measures.  Not thread-safe:
    the engine's lock guards it.
    """

    def __init__(
        self, source: PlanSource, resources: DeviceResources, calibrator: Calibrator | None, limit: int
    ) -> None:
        self.loaded = LoadedPlans(resources, limit)
        self._source = source
        self._resources = resources
        self._calibrator = calibrator
        self._open_shapes: OpenShapes | None = None  #: None where no sizes are opened that were not declared
        self._sizes = None if (model := source.as_model()) is None else model.sizes
        self._refused: set[ShapeKey] = set()  #: declared ranges that the device cannot serve by one plan
        if self._sizes is not None and self._sizes.in_inputs and source.default_shapes() is None:
            self._open_shapes = OpenShapes(self._sizes, source.header)

    def ready(self, key: ShapeKey, shapes: Shapes, feeds: Mapping[str, Feed] | None) -> LoadedPlan:
        """Return the plan that serves ``shapes``, whose key is ``key``: a loaded one, or a new one."""
        ready = self.loaded.find(key)
        opened = self._open_shapes
        if opened is None:
            return ready or self._load_declared(key, shapes, feeds)
        for other in opened.keys(key) if ready is None else ():
            ready = ready or self.loaded.find(other)
        while ready is None and (proposed := opened.propose(key)) is not None:
            try:
                ready = self._load(proposed, shapes, feeds)
            except (LimitError, ShapeError, UnsupportedError) as error:
                opened.refuse(key, proposed, error)
            else:
                if opened.compare(key, proposed, ready.compiled.plan):
                    self.loaded.drop(ready)
                    ready = None
                else:
                    opened.note(key, proposed, ready.compiled.plan)
        return ready or self._load_own(key, shapes, feeds)

    def _load_declared(self, key: ShapeKey, shapes: Shapes, feeds: Mapping[str, Feed] | None) -> LoadedPlan:
        """Return the new plan of a key with declared ranges; of ``shapes`` alone where the device cannot serve these.

        That one reads in parts what is too large to be bound.  A bundle has no other plans than its own.
        """
        if self._sizes is None or not key.is_range:
            return self._load(key, shapes, feeds)
        if key not in self._refused:
            try:
                return self._load(key, shapes, feeds)
            except DeviceLimitError as error:
                self._refused.add(key)
                self._sizes.refuse_declared(key.declared(self._source.dynamic), error)
        return self.own(key.at_sizes(shapes), shapes, feeds)

    def own(self, key: ShapeKey, shapes: Shapes, feeds: Mapping[str, Feed] | None) -> LoadedPlan:
        """Return the plan of these shapes alone: the loaded one, or a new one."""
        return self.loaded.find(key) or self._load_own(key, shapes, feeds)

    def _load_own(self, key: ShapeKey, shapes: Shapes, feeds: Mapping[str, Feed] | None) -> LoadedPlan:
        ready = self._load(key, shapes, feeds)
        if self._open_shapes is not None:
            self._open_shapes.note(key, key, ready.compiled.plan)
        return ready

    def _load(self, key: ShapeKey, shapes: Shapes, feeds: Mapping[str, Feed] | None) -> LoadedPlan:
        """Return the new plan of a key, of which ``shapes`` are one instance."""
        sizes = {name: tuple(shape) for name, shape in shapes.items()}
        with RareCollections():
            if self._calibrator is None:
                profile, add_kernel = self._resources.device.profile, self._resources.add_kernel
                return self.loaded.load(key, self._source.compile(key, sizes, profile, add_kernel))
            return self.loaded.load(key, self._calibrator.compile(key, sizes, feeds))
