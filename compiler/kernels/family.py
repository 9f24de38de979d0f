"""Kernel families by name: the module of each builds its kernels and says which layouts it likes.

A family module has ``build(context) -> Built`` and may have

``weight_layouts(node)``   input position -> :class:`Layout` for operands that are constants
``preferred_axes(node)``   input position -> logical axis that should be innermost in memory
``output_layout(node)``    the layout in which the kernel stores best (default: ONNX order)
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from ...runtime.plan.errors import InternalError
from ..ir.graph import Node
from ..ir.layout import Layout, contiguous
from . import transpose
from .context import Built, GroupContext

#: family -> module below this package
MODULES = {
    "map": "map",
    "gemm": "products.gemm",
    "conv": "products.conv",
    "conv_transpose": "products.conv_transpose",
    "reduce": "rows.reduce",
    "arg_reduce": "rows.arg_reduce",
    "window": "window",
    "scan": "rows.scan",
    "rank": "ordering.rank",
    "merge": "ordering.merge",
    "permute": "ordering.permute",
    "suppress": "ordering.suppress",
    "scatter": "ordering.scatter",
    "recurrent": "recurrent",
    "attention": "attention",
    "winograd_input": "products.winograd_input",
    "winograd_output": "products.winograd_output",
}


def module(family: str) -> ModuleType:
    if family not in MODULES:
        raise InternalError(f"there is no kernel family '{family}'")
    return import_module(f"{__package__}.{MODULES[family]}")


def weight_layouts(family: str, node: Node) -> dict[int, Layout]:
    ask = getattr(module(family), "weight_layouts", None)
    return dict(ask(node)) if ask else {}


def preferred_axes(family: str, node: Node) -> dict[int, int]:
    ask = getattr(module(family), "preferred_axes", None)
    return dict(ask(node)) if ask else {}


def output_layout(family: str, node: Node) -> Layout:
    ask = getattr(module(family), "output_layout", None)
    return ask(node) if ask else contiguous(node.outputs[0].rank)


def build(context: GroupContext) -> Built:
    """The kernel of a group.  A map that only moves elements across memory orders goes through tiles."""
    if context.group.family == "map":
        tiled = transpose.build_if_applicable(context)
        if tiled is not None:
            return tiled
    return module(context.group.family).build(context)
