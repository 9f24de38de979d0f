"""Map kernels that read along one axis and write along another: a square tile passes through workgroup memory.

Without the tile either the loads or the stores of neighbouring threads would be far apart, and a GPU would move a
whole cache line for each element.  Software drivers have no such cost and use the map kernel.
"""

from __future__ import annotations

from ...runtime.plan.record import record
from ..codegen.spec import Hook
from ..codegen.types import WGSL_TYPES
from ..ir.coordinates import domain_variables
from ..symbolic import expr as ex
from ..symbolic import polynomial as ix
from ..symbolic import substitution
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim
from ..tuning.config_choice import problem_key
from .config_key import extent
from .context import GroupContext
from .draft import BuiltKernel, Draft
from .geometry import linear_grid, unflatten
from .rows.rows import strides

#: Shorter sides are not worth a tile
SHORTEST_SIDE = 8


@record
class TransposeConfig:
    """Tiles of ``tile`` x ``tile`` elements, moved by ``tile`` x ``down`` threads; rows are padded by one element."""

    tile: int = 32
    down: int = 8

    def __post_init__(self) -> None:
        if self.tile % self.down or not 1 <= self.tile * self.down <= 256:
            raise ValueError(f"{self.tile} x {self.down} threads for a tile of {self.tile}")


CONFIGURATIONS = (TransposeConfig(), TransposeConfig(32, 4), TransposeConfig(16, 16), TransposeConfig(16, 8))


@record
class TransposedLoad:
    """A map's ``value`` at the variables of its domain, and its only ``load`` that runs along another axis than the
    stores: ``read_along``."""

    value: Expr
    load: Expr
    read_along: int


def find_transposed_load(context: GroupContext) -> TransposedLoad | None:
    """Return what makes tiles pay for a map group; None where the plain kernel is as good."""
    output = context.group.output
    if (
        not context.target.uses_workgroup_memory
        or context.group.region is not None
        or output.producer is None
        or context.group.also
    ):
        return None
    if output.dtype.packing > 1 or not output.layout.is_dense or output.rank < 2:
        return None
    value = context.operands.evaluate(output.producer, domain_variables(output.shape))
    crossing = _crossing_load(value, output.shape, output.layout.innermost)
    return None if crossing is None else TransposedLoad(value, crossing[1], crossing[0])


def build(context: GroupContext, transposed: TransposedLoad) -> BuiltKernel:
    """Return the tiled kernel of a map group."""
    output = context.group.output
    shape, written_along = output.shape, output.layout.innermost
    value, load, read_along = transposed.value, transposed.load, transposed.read_along
    names = {written_along: "along_write", read_along: "along_read"}
    others = [axis for axis in output.layout.order if axis not in names]
    rest = ix.product([shape[axis] for axis in others])
    coordinates: list[Dim] = [0] * output.rank
    for axis, name in names.items():
        coordinates[axis] = ix.variable(name, 0, max(ix.bounds(shape[axis])[1] - 1, 0))
    flat = ix.variable("rest", 0, max(ix.bounds(rest)[1] - 1, 0))
    for axis, coordinate in zip(others, unflatten(flat, [shape[axis] for axis in others]), strict=True):
        coordinates[axis] = coordinate
    mapping = {f"a{axis}": coordinate for axis, coordinate in enumerate(coordinates)}
    loaded, value = (substitution.substitute_variables(expression, mapping) for expression in (load, value))

    def staged(node: Expr) -> Expr | None:
        return ex.register("value", loaded.dtype) if node is loaded else None

    wgsl_type = WGSL_TYPES[loaded.dtype]
    key = problem_key(
        "transpose",
        read=extent(shape[read_along]),
        write=extent(shape[written_along]),
        rest=extent(rest),
        a=loaded.payload.dtype,
        y=output.dtype.name,
    )
    most = context.target.max_workgroup_threads
    config = context.choose(key, [each for each in CONFIGURATIONS if each.tile * each.down <= most])
    parameters = ("along_read", "along_write", "rest")
    store = context.results.store(coordinates, substitution.replace(value, staged))
    hooks = [
        Hook("load_element", parameters, 1, (), loaded),
        Hook("store", parameters, 1, (("value", wgsl_type),), None, (store,)),
    ]
    tiles = ix.multiply(*(ix.ceildiv(shape[axis], config.tile) for axis in names))
    return context.built(
        Draft(
            "transpose",
            config,
            hooks,
            dims={"size_read": shape[read_along], "size_write": shape[written_along], "rest": rest},
            threads=config.tile * config.down,
            grid=linear_grid(ix.multiply(tiles, rest), 1, context.target),
            workgroup_bytes=config.tile * (config.tile + 1) * (8 if wgsl_type.startswith("vec2") else 4),
            rounds=0,
            flops=ix.multiply(output.elements, sum(1 for node in ex.walk(value) if node.args)),
            parameters={"value_type": wgsl_type},
        )
    )


def _crossing_load(value: Expr, shape: tuple[Dim, ...], written_along: int) -> tuple[int, Expr] | None:
    """Return the axis and the only load that runs along another axis than the stores; None if no tile applies."""
    loads: list[tuple[int, Expr]] = []
    for node in ex.walk(value):
        if node.op == "guard" or ex.opaque_values(node):
            return None  # its reads may be out of range where the tile would still execute them
        if node.op != "load":
            continue
        distance = strides(node.payload.position, len(shape))
        along = [axis for axis, stride in enumerate(distance) if stride == 1 and axis != written_along]
        if along and distance[written_along] > 1:
            loads.append((along[0], node))
    if len(loads) != 1:
        return None
    read_along, load = loads[0]
    if any(ix.bounds(shape[axis])[1] < SHORTEST_SIDE for axis in (read_along, written_along)):
        return None
    return read_along, load
