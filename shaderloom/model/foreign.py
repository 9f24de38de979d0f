"""Operators that are foreign to the compiler: those that it cannot read, and those that a program has registered."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..runtime.plan.errors import ShaderloomError, UnsupportedError, merge_refusals

if TYPE_CHECKING:
    from ..compiler.frontend.model import ImportedModel


def has_foreign_operators() -> bool:
    """Return whether the program has registered operators of its own.

    Their code is not part of :func:`compiler_version`, so plans that use them are not cached on the disk.
    """
    registry = sys.modules.get("shaderloom.compiler.ops.registry")
    if registry is None:  # the registry is not loaded yet
        return False
    own = "shaderloom."
    return any(not definition.infer.__module__.startswith(own) for definition in registry.registry.present())


def refuse_foreign(imported: ImportedModel) -> None:
    """Raise :class:`UnsupportedError`, with all nodes and reasons, if the compiler cannot read some node."""
    from ..compiler.binding.shape_binding import refusals

    errors: list[ShaderloomError] = [
        UnsupportedError(port.refusal, tensor=port.name)
        for port in (*imported.graph.inputs, *imported.graph.outputs)
        if port.refusal is not None
    ]
    errors += [
        UnsupportedError("initializers of this type are not supported", tensor=name) for name in imported.graph.foreign
    ]
    if errors or imported.refused:
        errors = [*refusals(imported), *errors]
        raise merge_refusals([*errors, *refusals_of_readers(errors, imported)])


def refusals_of_readers(errors: Sequence[ShaderloomError], model: ImportedModel) -> Iterator[ShaderloomError]:
    """Yield an error for each node of the main graph that reads, in a type that no device can hold, what nodes compute
    of which there are errors.
    """
    from .value_types import on_device, value_types

    parts = [part for error in errors for part in error.parts or (error,)]
    refused = {(part.origin.graph, part.origin.index) for part in parts if part.origin is not None}
    types = {} if model.proto is None else value_types(model.proto)
    foreign: set[str] = set()
    for node in model.graph.nodes:
        if (node.origin.graph, node.origin.index) not in refused:
            name = next((name for name in node.inputs if name in foreign), None)
            if name is None:
                continue
            yield UnsupportedError(f"it reads '{name}', of a type that no device can hold", origin=node.origin)
        foreign.update(name for name in node.outputs if name in types and not on_device(types[name]))
