"""Axes of rows as the plans of a bundle state them: the compiler has proven them for the bundle's maker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..execution.plan_source import BatchPlan
from ..runtime.plan.batch_ports import BatchPorts
from ..runtime.plan.errors import UnsupportedError
from ..runtime.plan.size_range import SizeRange
from .model_rows import Shapes


class ClaimedRows:
    """Axes of rows of the plans of a bundle that serve shapes of rows.

    A bundle that states what is not so gets other results of its own, and errors where results have other rows than
    inputs.  Raises :class:`UnsupportedError` for a bundle that states nothing.
    """

    def __init__(self, plans: Sequence[BatchPlan], dynamic: Mapping[str, SizeRange], most: int) -> None:
        if not plans:
            raise UnsupportedError(
                "the bundle does not say that the rows of a batch are independent",
                hint="compile the model again; a model whose rows cannot be joined is refused by session.batched()",
            )
        self.inputs = plans[0].rows.inputs
        self._plans = [plan for plan in plans if plan.rows.inputs == self.inputs]
        self._dynamic, self._most = dynamic, most

    def prove(self, shapes: Shapes) -> BatchPorts:
        """Return the axes of rows of inputs and outputs.

        Raises :class:`UnsupportedError` for shapes of rows without a plan that states it.
        """
        return self._fitting(shapes)[0].rows

    def sizes(self, shapes: Shapes) -> tuple[int, ...]:
        """Return the numbers of rows that the bundle has plans for, in ascending order."""
        return tuple(sorted({size for plan in self._fitting(shapes) for size in self._batches(plan)}))

    def _fitting(self, shapes: Shapes) -> list[BatchPlan]:
        fitting = [plan for plan in self._plans if self._serves(plan, shapes) and self._batches(plan)]
        if not fitting:
            sizes = "; ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items())
            reason = f"the bundle has no plan for rows of {sizes} that are stated to be independent"
            raise UnsupportedError(reason, hint="session.shape_keys lists the shapes of its plans")
        return [plan for plan in fitting if plan.rows == fitting[0].rows]

    def _serves(self, plan: BatchPlan, shapes: Shapes) -> bool:
        if plan.shapes.keys() != shapes.keys():
            return False
        return all(len(dims) == len(shapes[name]) for name, dims in plan.shapes.items()) and all(
            axis == self.inputs.get(name) or self._allows(dim, shapes[name][axis])
            for name, dims in plan.shapes.items()
            for axis, dim in enumerate(dims)
        )

    def _allows(self, dim: int | str, size: int) -> bool:
        return dim == size if isinstance(dim, int) else self._dynamic[dim].allows(size)

    def _batches(self, plan: BatchPlan) -> Sequence[int]:
        """Return the numbers of rows that a plan serves; a range has those up to the most rows of a batch."""
        dims = {plan.shapes[name][axis] for name, axis in self.inputs.items() if name in plan.shapes}
        if len(dims) != 1:
            return ()
        (dim,) = dims
        if isinstance(dim, int):
            return (dim,) if dim > 0 else ()
        sizes = self._dynamic[dim]
        least = sizes.low or sizes.step
        return range(least, min(sizes.high, max(self._most, least)) + 1, sizes.step)
