"""What the families of products have in common."""

from __future__ import annotations

from abc import abstractmethod

from ...ir.graph import Node, Shape, Value
from ..context import GroupContext
from ..draft import BuiltKernel
from ..family import KernelFamily, Reuse
from ..groups import Region
from .product import Product
from .product_templates import build_product


class ProductFamily(KernelFamily):
    """Base of the product families: threads hold vectors of four neighbouring results."""

    stores_packed = True
    stores_halves = True
    stores_once = True

    def vector_axis(self, anchor: Node) -> int | None:
        return -1

    @abstractmethod
    def product(self, context: GroupContext) -> Product:
        """Return the sizes and the terms of the product behind a group."""

    def stored_run(self, context: GroupContext) -> Shape | None:
        return self.product(context).stored_run

    def build(self, context: GroupContext) -> BuiltKernel:
        return build_product(context, self.product(context))


class PackedWeightFamily(ProductFamily):
    """Base of the products of rows with a weight whose words hold several elements each."""

    def reuse(self, region: Region, user: Node, operand: Value) -> Reuse:
        return Reuse.MANY if user is region.anchor or user in region.partners else Reuse.ONCE

    def preferred_axes(self, region: Region) -> list[tuple[Value, int]]:
        """Return the terms of A, to store innermost."""
        value = region.anchor.operand(0)
        return [(value, value.rank - 1)]

    def may_reorder(self, output: Value) -> bool:
        return True
