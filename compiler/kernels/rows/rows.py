"""Rows and columns: how a kernel walks a domain of which some axes are reduced.

Rows are the kept axes, columns the reduced ones, each flattened in the order of the main operand in memory,
so that neighbouring threads (or lanes) touch neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....runtime.plan.errors import UnsupportedError
from ....runtime.plan.record import record
from ...codegen.spec import Hook
from ...ir.coordinates import domain_variables
from ...ir.graph import Value
from ...symbolic import expr as ex
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.lanes import LANES
from ...symbolic.polynomial import Dim
from ..context import GroupContext
from ..geometry import find_hooks, lanes_of, unflatten


def memory_order(values: Iterable[Expr], domain: Sequence[Dim]) -> list[int]:
    """Return the axes of the domain from the outermost to the innermost in memory.

    ``values`` read their operands at the variables of the domain.  The operand that depends on most elements of the
    domain decides; an axis that it does not depend on counts as outermost.
    """
    best: list[int] = [0] * len(domain)
    covered = 0
    for value in values:
        for node in ex.loads(value):
            candidate = strides(node.payload.position, len(domain))
            elements = 1
            for axis, stride in enumerate(candidate):
                elements *= max(ix.bounds(domain[axis])[1], 1) if stride else 1
            if elements > covered:
                best, covered = candidate, elements
    return sorted(range(len(domain)), key=lambda axis: (-best[axis] if best[axis] else -(1 << 62), axis))


def strides(position: Dim, rank: int) -> list[int]:
    """Return the distance in memory of neighbours along each axis, measured at the origin."""
    values = dict.fromkeys((f"a{axis}" for axis in range(rank)), 0)
    values |= {
        atom.payload: atom.high for atom in ix.atoms(position) if atom.kind == "var" and atom.payload not in values
    }
    origin = ix.evaluate(position, values, lambda _: 0)
    return [abs(ix.evaluate(position, {**values, f"a{axis}": 1}, lambda _: 0) - origin) for axis in range(rank)]


def exit_to_domain(context: GroupContext, coordinates: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the domain coordinates of the element of the group's result at ``coordinates``.

    Axes that the result does not depend on are 0.  Raises :class:`UnsupportedError` where the result is behind a view
    that splits or joins axes.
    """
    region = context.group.region
    assert region is not None
    by_axis: dict[str, Dim] = {}
    for source, coordinate in zip(region.coordinates[region.exit], coordinates, strict=True):
        if not isinstance(source, ix.Index):
            continue
        name = next(iter(ix.variables(source)))
        if source != ix.variable(name, *ix.bounds(source)):
            raise UnsupportedError(
                f"a {region.exit.dtype} result of {region.anchor.op} behind {region.nodes[-1].op} "
                "has words that cross rows",
                origin=region.anchor.origin,
            )
        by_axis[name] = coordinate
    return tuple(by_axis.get(f"a{axis}", 0) for axis in range(len(region.domain)))


@record(slots=False)
class Rows:
    """A domain split into rows and columns.

    ``row_axes`` and ``column_axes`` are in memory order; axes of size one are in neither.  ``innermost`` is the axis
    whose neighbours are neighbours in memory (-1 if there is none).
    """

    domain: tuple[Dim, ...]
    row_axes: tuple[int, ...]
    column_axes: tuple[int, ...]
    innermost: int

    @classmethod
    def split(cls, domain: Sequence[Dim], reduced: Iterable[int], order: Sequence[int]) -> Rows:
        reduced = frozenset(reduced)
        wide = [axis for axis in order if domain[axis] != 1]
        return cls(
            tuple(domain),
            tuple(axis for axis in wide if axis not in reduced),
            tuple(axis for axis in wide if axis in reduced),
            wide[-1] if wide else -1,
        )

    @property
    def rows(self) -> Dim:
        return ix.product([self.domain[axis] for axis in self.row_axes])

    @property
    def columns(self) -> Dim:
        return ix.product([self.domain[axis] for axis in self.column_axes])

    @property
    def columns_are_contiguous(self) -> bool:
        """Whether neighbours in memory belong to one row."""
        return self.innermost in self.column_axes

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the variables of the row axes."""
        return tuple(f"row_{i}" for i in range(len(self.row_axes)))

    def row_sizes(self, row_lanes: int) -> list[Dim]:
        """Return the sizes of the row axes, the innermost counted in groups of ``row_lanes``."""
        sizes = [self.domain[axis] for axis in self.row_axes]
        if row_lanes > 1:
            sizes[-1] = ix.floordiv(sizes[-1], row_lanes)
        return sizes

    def row_variables(self, row_lanes: int) -> list[Dim]:
        """Return the variables ``row_0, row_1, ...``, one per row axis."""
        sizes = self.row_sizes(row_lanes)
        return [ix.variable(name, 0, max(ix.bounds(size)[1] - 1, 0)) for name, size in zip(self.names, sizes)]

    def find_hooks(self, row_lanes: int = 1) -> list[Hook]:
        """Return the hooks that compute the variables of the row axes from the variable ``row``."""
        sizes = self.row_sizes(row_lanes)
        row = ix.variable("row", 0, max(ix.bounds(ix.product(sizes))[1] - 1, 0))
        return find_hooks(self.names, ("row",), unflatten(row, sizes))

    def coordinates(self, row_lanes: int = 1, column_lanes: int = 1) -> tuple[Dim, ...]:
        """Return domain coordinates in terms of ``row_0, row_1, ...``, ``column`` and, with four lanes, ``lane``."""
        coordinates: list[Dim] = [0] * len(self.domain)
        variables = self.row_variables(row_lanes)
        if row_lanes == LANES:
            variables[-1] = lanes_of(variables[-1])
        for axis, value in zip(self.row_axes, variables, strict=True):
            coordinates[axis] = value
        sizes = [self.domain[axis] for axis in self.column_axes]
        count = ix.ceildiv(ix.product(sizes), column_lanes)
        column = ix.variable("column", 0, max(ix.bounds(count)[1] - 1, 0))
        flat = lanes_of(column) if column_lanes == LANES else column
        for axis, value in zip(self.column_axes, unflatten(flat, sizes), strict=True):
            coordinates[axis] = value
        return tuple(coordinates)


def rows_along(context: GroupContext, operand: Value, axis: int) -> Rows:
    """Return the domain of ``operand`` with ``axis`` as columns, in memory order."""
    trial = context.operands.read(operand, domain_variables(operand.shape))
    return Rows.split(operand.shape, (axis,), memory_order([trial], operand.shape))


@record
class RowTraversal:
    """The iteration of threads over the domain: its rows, and the lanes along rows and along columns."""

    rows: Rows
    row_lanes: int
    column_lanes: int

    @property
    def lanes(self) -> int:
        return max(self.row_lanes, self.column_lanes)

    @property
    def threads(self) -> Dim:
        """Rows, or groups of rows."""
        return ix.product(self.rows.row_sizes(self.row_lanes)) if self.rows.row_axes else 1

    @property
    def columns(self) -> Dim:
        """Steps along a row."""
        return ix.ceildiv(self.rows.columns, self.column_lanes)
