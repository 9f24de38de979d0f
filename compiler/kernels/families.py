"""Kernel families by name: the module of each builds its kernels and says which layouts it likes.

A family module has ``build(context) -> Built`` and may have

``weight_layouts(node)``   input position -> :class:`Layout` for operands that are constants
``preferred_axes(node)``   input position -> logical axis that should be innermost in memory
``output_layout(node)``    the layout in which the kernel stores best (default: ONNX order)
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from ...runtime.errors import InternalError
from ..ir import Node
from ..layout import Layout, contiguous
from . import transpose
from .context import Built, GroupContext

NAMES = (
    "map",
    "gemm",
    "conv",
    "conv_transpose",
    "reduce",
    "arg_reduce",
    "window",
    "scan",
    "rank",
    "merge",
    "permute",
    "suppress",
    "scatter",
    "recurrent",
    "attention",
    "winograd_input",
    "winograd_output",
)


def module(family: str) -> ModuleType:
    if family not in NAMES:
        raise InternalError(f"there is no kernel family '{family}'")
    return import_module(f"{__package__}.{family}")


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
