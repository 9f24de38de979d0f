"""Open sizes of the inputs of a model that is one plan (:mod:`..model.open_sizes`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from ..model.feeds import ShapeKey, is_dimension_name
from ..model.header import ModelHeader
from ..model.open_sizes import Key, SizeHistory
from ..model.size_memory import INPUTS, SizeMemory
from ..model.size_orders import compared_sizes
from ..runtime.plan.plan import Plan


class OpenShapes:
    """Chooses, for shapes without a loaded plan, between a plan of their own and one for a range of sizes."""

    def __init__(self, memory: SizeMemory, header: ModelHeader) -> None:
        self._memory = memory
        self._header = header

    @cached_property
    def _history(self) -> SizeHistory:
        names = {
            (port.name, axis): dim
            for port in self._header.feedable.values()
            for axis, dim in enumerate(port.dims or ())
            if is_dimension_name(dim)
        }
        return self._memory.history(INPUTS, names)

    def keys(self, key: ShapeKey) -> Iterator[ShapeKey]:
        """Yield the keys of the plans for ranges that cover ``key``, the newest first."""
        described = _describe(key)
        return (key.open(general) for general in self._history.generals if general.key(described) is not None)

    def propose(self, key: ShapeKey) -> ShapeKey | None:
        """Return the key of the plan for a range that ``key`` should get; None for a plan of its own."""
        general = self._history.generalise(_describe(key))
        return None if general is None else key.open(general)

    def compare(self, key: ShapeKey, used: ShapeKey, plan: Plan) -> bool:
        """Record the sizes whose order decides a shape of ``plan``, which ``key`` has got as one of ``used``.

        Return whether that is new, so that :meth:`propose` has a better range, of sizes in one order.
        """
        assert used.opened is not None, "what is proposed is a range"
        pairs = compared_sizes(plan)
        return bool(pairs) and self._history.compare(_describe(key), used.opened, pairs)

    def note(self, key: ShapeKey, used: ShapeKey, plan: Plan) -> None:
        """Record that ``key`` has got the ``plan`` of ``used``: itself, or a range."""
        self._memory.note(INPUTS, _describe(key), used.opened, plan.facts.tiled)

    def refuse(self, key: ShapeKey, proposed: ShapeKey, error: Exception) -> None:
        """Record that there is no plan for what :meth:`propose` has returned for ``key``."""
        assert proposed.opened is not None, "what is proposed is a range"
        self._memory.refuse(INPUTS, _describe(key), proposed.opened, str(error))


def _describe(key: ShapeKey) -> Key:
    return tuple((name, ("input", dims)) for name, dims in key.dims)
