"""The description of a kernel before it is rendered as text: :class:`KernelSpec`.

A kernel is a template with *hooks*: WGSL functions that load the template's operands and store its results.  Hooks are
where fusion lives: ``load_a`` may dequantise, mask or gather; ``store`` adds a bias, applies an activation and writes
through a view.  The template sees their names and parameters only.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from ...runtime.plan.record import record
from ..symbolic.expr import Expr
from ..symbolic.polynomial import Dim

#: Device feature with which a kernel reads vector operands of f32 as pairs of 64-bit words
LONG_WORDS = "shader-int64"

Grid = tuple[Dim, Dim, Dim]


@record
class BoundTensor:
    """A bound tensor: ``name`` in the shader, ``read`` or ``read_write``, storage type."""

    name: str
    access: str
    dtype: str


@record
class Store:
    """Write ``value`` to element ``position`` of an operand, where ``condition`` (if any) holds."""

    operand: str
    dtype: str
    position: Dim
    value: Expr
    condition: Expr | None = None


@record
class Hook:
    """A generated function.

    ``parameters`` are i32 variables of its index arithmetic; ``registers`` are further parameters with their WGSL
    types (accumulators).  With ``lanes`` = 4 the expressions use the variable ``lane`` for four neighbours: the result
    is a ``vec4`` and registers of a ``vec4`` type differ by lane.  It returns ``result``, or performs ``stores``.

    With ``reads_first`` there are two functions for one store: ``result`` returns what is stored, and the hook's own
    stores that, so that a thread reads for all of its results before it stores the first.

    A ``held`` result waits in registers for a while.  If it is made of one load, the function returns what memory has,
    such as packed words, and the template calls another one when it needs the result (:mod:`.held`).
    """

    name: str
    parameters: tuple[str, ...]
    lanes: int = 1
    registers: tuple[tuple[str, str], ...] = ()
    result: Expr | None = None
    stores: tuple[Store, ...] = ()
    held: bool = False
    reads_first: bool = False


class RangeForm(Enum):
    """What a part is of which a kernel stores the range: what a workgroup stores, or a thread."""

    WORKGROUP = "workgroup"
    THREAD = "thread"


@record
class StoredRange:
    """The kernel stores the range of its result, of ``elements``, by the hook ``store_range``."""

    form: RangeForm
    elements: Dim


@record
class KernelSpec:
    """Everything that determines a kernel's text; equal specs give equal text."""

    template: str
    config: Any  #: a frozen dataclass of tile sizes, whose constructor rejects illegal combinations
    operands: tuple[BoundTensor, ...]
    hooks: tuple[Hook, ...]
    dims: tuple[tuple[str, Dim], ...]
    threads: int  #: of a workgroup
    grid: Grid  #: workgroups in each dimension
    symbols: tuple[str, ...] = ()  #: declared dynamic dimensions of the plan, in the order of the uniform buffer
    features: tuple[str, ...] = ()
    workgroup_bytes: int = 0
    parameters: tuple[tuple[str, Any], ...] = ()  #: further template parameters that are no dims (names, flags)
    hides_uniforms: bool = False  #: whether the text hides its sizes from a driver that would inline them
    by_bits: tuple[str, ...] = ()  #: helpers that the driver is better given as integer arithmetic
    iterations: Dim | None = None  #: dispatches one after another, which ``iteration.number`` tells apart
    stored_range: StoredRange | None = None  #: of the last operand
