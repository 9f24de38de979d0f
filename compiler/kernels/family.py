"""Kernel families: what the rest of the compiler asks of a kind of kernel, in one typed class.

An operator that is no map names its family (``OpDef.family``).  A family is one object of a subclass of
:class:`KernelFamily`, registered by the module that defines it, which is imported when the family is first asked
for.  Fusion, layouts, half precision and the interpreter decide by its answers, never by its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import ClassVar, TypeVar

import numpy as np

from ...runtime.plan.dtypes import DType
from ...runtime.plan.errors import InternalError
from ..definitions import Definitions
from ..ir.coordinates import Sizes, domain_variables
from ..ir.graph import Node, Shape, Value
from ..ir.layout import Layout, contiguous, ordered_by
from ..ops.registry import Registry, registry
from .context import GroupContext
from .draft import BuiltKernel
from .groups import Region, Scores

#: Whether constants may carry a value (far below, far above) the range of a narrower type
OverflowFlags = tuple[bool, bool]


class Reuse(IntEnum):
    """Frequency of recomputation: how often a kernel computes an element of an inlined operand again."""

    ONCE = 0  #: about once for each result
    FEW = 1  #: a few times, or many times beside the loads of a whole column of weights
    MANY = 2  #: once for every result of a row or column
    WINDOW = 3  #: the same, and again for every position of a window


class KernelFamily(ABC):
    """A kind of kernel: how it computes its anchor, and what other parts of the compiler may do around it.

    Only ``name``, :meth:`reference` and :meth:`build` must be given; the defaults of the rest are safe for any kernel.
    """

    #: The name that ``OpDef.family`` and plans use
    name: ClassVar[str]
    #: Whether a region of the family is a row program: a reduction that further reductions over the same axes and
    #: elementwise consumers in the shape of its operand may join (softmax, normalisation)
    is_row_program: ClassVar[bool] = False
    #: Whether the kernel stores packed results of any size
    stores_packed: ClassVar[bool] = False
    #: Whether half precision may store float32 results as float16 (where :meth:`can_store` holds)
    stores_halves: ClassVar[bool] = False
    #: Whether the kernel stores each element of its result once, so that it can find their range besides
    stores_once: ClassVar[bool] = False
    #: Whether the kernel of an attention may compute the family's product as its scores
    gives_scores: ClassVar[bool] = False
    #: Whether results that are computed from positions are positions too, which must stay exact
    keeps_positions: ClassVar[bool] = False

    # -- fusion --------------------------------------------------------------------------------------------------

    def domain(self, anchor: Node) -> Shape:
        """Return the shape that the coordinates of a region range over."""
        return anchor.outputs[0].shape

    def result_coordinates(self, anchor: Node) -> Shape:
        """Return the coordinates of the anchor's result as functions of those of :meth:`domain`."""
        return domain_variables(anchor.outputs[0].shape)

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        """Return how often the kernel of ``region`` computes an element of ``operand``, which member ``user`` reads."""
        return Reuse.ONCE

    def reads_result(self, anchor: Node) -> bool:
        """Return whether the kernel reads its result again: then nothing is fused behind it."""
        return False

    def find_scores(
        self, anchor: Node, rank: Mapping[Node, int], outputs: set[Value], taken: Mapping[Node, object], ops: Registry
    ) -> Scores | tuple[Node, str] | None:
        """Return the product that the kernel also computes, or the nearest one with the reason why it does not; None if
        the family takes none.

        ``rank`` orders the nodes, ``outputs`` are those of the model, ``taken`` are nodes that other kernels compute.
        """
        return None

    def partners(self, anchor: Node) -> list[tuple[Node, ...]]:
        """Return sets of nodes that the kernel can compute beside the anchor, the best first.

        Their results are at the anchor's coordinates, as :meth:`result_coordinates` of their families says, and have to
        meet the anchor's in one result.
        """
        return []

    def may_update(self, context: GroupContext, updates: Sequence[Node]) -> bool:
        """Return whether the kernel of the context's group can write what is new in caches that it reads.

        ``updates`` are the nodes of these results, in the memory of inputs (``Group.updates``).
        """
        return False

    # -- layouts -------------------------------------------------------------------------------------------------

    def weight_layouts(self, node: Node) -> dict[int, Layout]:
        """Return the layouts for operands that are constants, by input position."""
        return {}

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        """Return operands with the logical axis that should be innermost in memory."""
        return []

    def output_layout(self, node: Node) -> Layout:
        """Return the layout in which the kernel stores best."""
        return contiguous(node.outputs[0].rank)

    def result_layout(self, anchor: Node, coordinates: Shape) -> Layout:
        """Return :meth:`output_layout` for a value at ``coordinates`` of the domain that a region stores instead."""
        natural = self.output_layout(anchor)
        return ordered_by(coordinates, {f"a{axis}": place for place, axis in enumerate(natural.order)})

    def vector_axis(self, anchor: Node) -> int | None:
        """Return the axis of the result along which threads hold vectors, so that a packed result may follow; None
        where they hold none, or some that are not neighbours.
        """
        return None

    def may_reorder(self, output: Value) -> bool:
        """Return whether the kernel stores as well with another axis innermost, where consumers prefer that."""
        return False

    # -- values --------------------------------------------------------------------------------------------------

    def why_exact(self, anchor: Node) -> str | None:
        """Return why the results must keep their full precision in memory; None if they need not."""
        return None

    def overflow(self, node: Node, operands: Sequence[OverflowFlags]) -> OverflowFlags:
        """Return in which directions the results may leave a range that the present ``operands`` leave."""
        far = any(low or high for low, high in operands)
        return far, far

    @abstractmethod
    def reference(self, node: Node, operands: Sequence[np.ndarray], sizes: Sizes) -> np.ndarray:
        """Return the result of ``node`` computed with numpy, in the dtype of the compiler.

        ``operands`` are those that are present, in order (:func:`by_position`); ``sizes`` are the values of declared
        dynamic dimensions.
        """

    # -- the kernel ----------------------------------------------------------------------------------------------

    def stored_run(self, context: GroupContext) -> Shape | None:
        """Return the coordinates of the four neighbouring elements of the anchor's result that a thread stores, in
        terms of the variable ``lane``; None where it stores single elements or parts of four."""
        return None

    def can_store(self, context: GroupContext, dtype: DType) -> bool:
        """Return whether the kernel of a float32 result can store it as ``dtype``, without becoming a slower one.

        Packed results need threads that own whole words.
        """
        if dtype.packing == 1:
            return True
        run = self.stored_run(context)
        return run is not None and context.results.is_run(run)

    @abstractmethod
    def build(self, context: GroupContext) -> BuiltKernel:
        """Return the kernel of a group; raises the errors of the compiler where none can be built."""


Family = TypeVar("Family", bound=KernelFamily)

assert __package__ is not None
_FAMILIES: Definitions[str, KernelFamily] = Definitions(__package__)


def register_family(family: Family) -> Family:
    """Add a family; raises :class:`ValueError` if its name is taken."""
    if not _FAMILIES.add(family.name, family):
        raise ValueError(f"kernel family {family.name} is registered already")
    return family


def by_position(node: Node, operands: Sequence[np.ndarray]) -> list[np.ndarray | None]:
    """Return the present ``operands`` by input position, None for absent ones."""
    present = iter(operands)
    return [None if value is None else next(present) for value in node.inputs]


def extremum_overflow(kind: str, operand: OverflowFlags) -> OverflowFlags:
    """Return the overflow of a reduction: an extremum of ordinary elements too lies beyond on its own side alone."""
    low, high = operand
    if kind not in ("max", "max_number", "min"):
        return low, high
    return low and kind == "min", high and kind != "min"


def family_named(name: str) -> KernelFamily:
    """Return the family called ``name``."""
    family = _FAMILIES.find(name)
    if family is None:
        raise InternalError(f"there is no kernel family '{name}'")
    return family


def family_of(node: Node, operators: Registry = registry) -> KernelFamily | None:
    """Return the family of a node; None for maps and for operators that must be expanded first."""
    name = operators.of(node).family
    return None if name is None else family_named(name)


def build(context: GroupContext) -> BuiltKernel:
    """Return the kernel of a group."""
    return family_named(context.group.family).build(context)
