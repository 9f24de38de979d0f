"""Which axes of a model's inputs and outputs are the rows of a batch, and the proof of it for the shapes at hand."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..model.feeds import is_dimension_name
from ..model.header import ModelHeader
from ..runtime.plan.batch_ports import BatchPorts
from ..runtime.plan.declared_port import DeclaredPort
from ..runtime.plan.errors import UnsupportedError
from .batch_sizes import sizes_up_to

if TYPE_CHECKING:
    from ..compiler.frontend.model import ImportedModel
    from ..compiler.options import Limits

Shapes = Mapping[str, tuple[int, ...]]

#: Shapes of rows whose proofs are remembered; texts of many lengths have one each
_REMEMBERED = 4096


def rows_of_inputs(header: ModelHeader) -> dict[str, int]:
    """Return the axis of each input that is the batch by declaration: the leading open dimension that most inputs, or
    else outputs, have in common; an axis without a name is one if it leads.

    Raises :class:`UnsupportedError` if no input has one.
    """
    inputs = [port for port in header.inputs if port.dims]
    leading = [port.dims[0] for port in inputs if port.dims and not isinstance(port.dims[0], int)]
    if not leading:
        raise UnsupportedError(
            "no input has an open leading dimension, so its rows cannot be joined",
            hint="export the model with a dynamic batch, or open a batch of 1: InferenceSession(..., batch='open')",
        )
    named = Counter(dim for dim in leading if is_dimension_name(dim))
    ends = Counter(port.dims[0] for port in header.outputs if port.dims)
    name = max(named, key=lambda dim: (ends[dim], named[dim]), default=None)
    axes = {port.name: _axis(port, name) for port in inputs}
    return {port: axis for port, axis in axes.items() if axis is not None}


def _axis(port: DeclaredPort, name: int | str | None) -> int | None:
    dims = port.dims or ()
    if name is not None and name in dims:
        return dims.index(name)
    return 0 if dims[0] is None or dims[0] in ("", "?") else None


class ModelRows:
    """Axes of rows, proven once for all shapes that differ in the number of rows alone.  Thread-safe.

    ``load`` returns the model, parsed, and the limits of the compiler; it is called when something is to be proven.
    """

    def __init__(self, header: ModelHeader, most: int, load: Callable[[], tuple[ImportedModel, Limits]]) -> None:
        self.inputs = rows_of_inputs(header)
        self._outputs = frozenset(port.name for port in header.outputs)
        self._most = most
        self._load = load
        self._proofs: dict[object, BatchPorts | UnsupportedError] = {}
        self._lock = threading.Lock()

    def prove(self, shapes: Shapes) -> BatchPorts:
        """Return the axes of rows of inputs and outputs.

        Raises :class:`UnsupportedError` with the nodes that mix rows, and other refusals of the compiler.
        """
        key = tuple(
            (name, tuple(None if axis == self.inputs.get(name) else size for axis, size in enumerate(shape)))
            for name, shape in sorted(shapes.items())
        )
        with self._lock:
            proof = self._proofs.get(key)
            if proof is None:
                if len(self._proofs) >= _REMEMBERED:
                    self._proofs.pop(next(iter(self._proofs)))
                proof = self._proofs[key] = self._attempt(shapes)
        if isinstance(proof, UnsupportedError):
            raise proof
        return proof

    def sizes(self, shapes: Shapes) -> tuple[int, ...]:
        """Return the numbers of rows that have plans of their own, whatever the shapes of rows."""
        return sizes_up_to(self._most)

    def _attempt(self, shapes: Shapes) -> BatchPorts | UnsupportedError:
        from ..compiler.batching.row_proof import prove_rows

        model, limits = self._load()
        inputs = {name: axis for name, axis in self.inputs.items() if name in shapes}
        try:
            return prove_rows(model, shapes, inputs, max(self._most, 2), limits, outputs=self._outputs)
        except UnsupportedError as error:
            return error
