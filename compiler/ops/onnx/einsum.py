"""Einsum: a sum of products over named axes, as transpositions, reductions and matrix products.

Operands are contracted from the left, two at a time.  Axes that no later term and not the result have are summed over
as early as possible: those of one operand by a reduction, those of both by a matrix product.  Axes that both operands
and the rest have are batch axes of that product.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.plan.errors import ShapeError
from ....runtime.plan.record import record
from ...ir.graph import Node, Value
from ...symbolic import polynomial as ix
from ...symbolic.expr import Expr
from ...symbolic.polynomial import Dim
from .. import checks
from ..checks import NUMERIC
from ..math.reductions import reduce
from ..registry import Builder, Inferred, Read, register

Labels = tuple[str, ...]  #: of axes; those of an ellipsis are ".0", ".1", ... counted from the last one


@record
class EinsumAttributes:
    equation: str


@record
class Equation:
    """An equation whose ellipses are resolved; ``sizes`` of broadcast axes is the larger one."""

    terms: tuple[Labels, ...]
    result: Labels
    sizes: dict[str, Dim]


def _labels(node: Node, term: str, rank: int | None, ellipsis: int) -> Labels:
    """Return the labels of one term; ``ellipsis`` is the number of axes of "..." where the rank is not known."""
    head, dots, tail = term.partition("...")
    letters = head + tail
    checks.require(
        all(letter.isascii() and letter.isalpha() for letter in letters), node, f"'{term}' is no term of an equation"
    )
    if rank is not None:
        fits = rank >= len(letters) if dots else rank == len(letters)
        checks.require(fits, node, f"term '{term}' for an operand of rank {rank}")
        ellipsis = rank - len(letters)
    middle = tuple(f".{place}" for place in reversed(range(ellipsis))) if dots else ()
    return (*head, *middle, *tail)


def parse(node: Node) -> Equation:
    """Resolve the attribute ``equation`` against the shapes of the operands."""
    text = node.attributes.equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    values = [node.operand(position) for position in range(len(node.inputs))]
    written = left.split(",")
    checks.require(len(written) == len(values), node, f"{len(written)} terms for {len(values)} operands")
    terms = tuple(_labels(node, term, value.rank, 0) for term, value in zip(written, values))
    sizes: dict[str, Dim] = {}
    for labels, value in zip(terms, values):
        for label, size in zip(labels, value.shape):
            if size != value.shape[labels.index(label)]:
                raise ShapeError(f"axis '{label}' is twice in one operand, with different sizes", origin=node.origin)
            merged = checks.broadcast_dim(sizes.get(label, size), size)
            if merged is None:
                raise ShapeError(f"axis '{label}' has the sizes {ix.text(sizes[label])} and {ix.text(size)}")
            sizes[label] = merged
    dotted = sorted((label for label in sizes if label[0] == "."), key=lambda label: -int(label[1:]))
    if arrow:
        result = _labels(node, right, None, len(dotted))
    else:
        everything = [label for labels in terms for label in labels]
        result = (*dotted, *sorted(label for label in sizes if label[0] != "." and everything.count(label) == 1))
    for label in result:
        checks.require(label in sizes, node, f"axis '{label}' of the result is in no term")
    checks.require(len(set(result)) == len(result), node, f"the result '{right}' names an axis twice")
    return Equation(terms, result, sizes)


def _infer(node: Node) -> Inferred:
    values = [node.operand(position) for position in range(len(node.inputs))]
    checks.require_same_type(node, values)
    equation = parse(node)
    return [(values[0].dtype, tuple(equation.sizes[label] for label in equation.result))]


# -- repeated labels -------------------------------------------------------------------------------------------------


@record
class DiagonalAttributes:
    """ResizedAxis ``i`` of the operand is read at the coordinate of axis ``axes[i]`` of the result."""

    axes: tuple[int, ...]


def _infer_diagonal(node: Node) -> Inferred:
    value, axes = node.operand(0), node.attributes.axes
    sizes = {target: value.shape[axis] for axis, target in enumerate(axes)}
    return [(value.dtype, tuple(sizes[target] for target in range(len(sizes))))]


def _read_diagonal(node: Node, coordinates: Sequence[Dim], read: Read) -> Expr:
    return read(0, [coordinates[target] for target in node.attributes.axes])


register(
    name="Diagonal",
    domain="loom",
    infer=_infer_diagonal,
    attributes=DiagonalAttributes,
    gather=_read_diagonal,
)


# -- contraction -----------------------------------------------------------------------------------------------------


@record(slots=False)
class _Term:
    """A tensor whose axes have distinct labels."""

    value: Value
    labels: Labels


class _Contraction:
    """The decomposition of one Einsum; ``sizes`` are those of the equation."""

    def __init__(self, builder: Builder, sizes: dict[str, Dim]) -> None:
        self.builder = builder
        self.sizes = sizes

    def term(self, value: Value, labels: Labels, wanted: set[str]) -> _Term:
        """Prepare an operand: take diagonals, drop axes of size 1 that others broadcast, sum over unused axes."""
        distinct = tuple(dict.fromkeys(labels))
        if len(distinct) < len(labels):
            axes = tuple(distinct.index(label) for label in labels)
            value = self.builder.op("Diagonal", value, domain="loom", axes=axes)
        full_axes = [axis for axis, label in enumerate(distinct) if value.shape[axis] == self.sizes[label]]
        if len(full_axes) < value.rank:
            shape = tuple(value.shape[axis] for axis in full_axes)
            value = self.builder.op("View", value, domain="loom", shape=shape)
        return self.summed(_Term(value, tuple(distinct[axis] for axis in full_axes)), wanted)

    def summed(self, term: _Term, wanted: set[str]) -> _Term:
        axes = [axis for axis, label in enumerate(term.labels) if label not in wanted]
        remaining = tuple(label for label in term.labels if label in wanted)
        return _Term(reduce(self.builder, term.value, "sum", axes, keepdims=False), remaining) if axes else term

    def ordered(self, term: _Term, labels: Labels) -> Value:
        """Transpose the tensor to the order of ``labels``."""
        perm = tuple(term.labels.index(label) for label in labels)
        if perm == tuple(range(len(perm))):
            return term.value
        return self.builder.op("Transpose", term.value, perm=perm)

    def merged(self, term: _Term, batch: Labels, first: Labels, second: Labels) -> Value:
        """Reshape to [batch..., first, second], where each of the last two axes merges several (or none)."""
        value = self.ordered(term, (*batch, *first, *second))
        shape = [self.sizes[label] for label in batch]
        shape += [ix.product([self.sizes[label] for label in labels]) for labels in (first, second)]
        if tuple(shape) == value.shape:
            return value
        return self.builder.op("View", value, domain="loom", shape=tuple(shape))

    def product(self, left: _Term, right: _Term, wanted: set[str]) -> _Term:
        """Multiply the two operands, and sum over the axes of both that are not wanted."""
        left = self.summed(left, wanted | set(right.labels))
        right = self.summed(right, wanted | set(left.labels))
        shared = [label for label in left.labels if label in right.labels]
        batch = tuple(label for label in shared if label in wanted)
        inner = tuple(label for label in shared if label not in wanted)
        rows = tuple(label for label in left.labels if label not in shared)
        columns = tuple(label for label in right.labels if label not in shared)
        labels = (*batch, *rows, *columns)
        a = self.merged(left, batch, rows, inner)
        b = self.merged(right, batch, inner, columns)
        name = "MatMul" if inner else "Mul"  # without a sum [rows, 1] times [1, columns] is elementwise
        value = self.builder.op(name, a, b)
        shape = tuple(self.sizes[label] for label in labels)
        if value.shape != shape:
            value = self.builder.op("View", value, domain="loom", shape=shape)
        return _Term(value, labels)


def _expand(builder: Builder, node: Node) -> Sequence[Value]:
    equation = parse(node)
    contraction = _Contraction(builder, equation.sizes)
    later = [set(equation.result).union(*equation.terms[position + 1 :]) for position in range(len(equation.terms))]
    total: _Term | None = None
    for position, labels in enumerate(equation.terms):
        others = set().union(*(each for at, each in enumerate(equation.terms) if at != position))
        term = contraction.term(node.operand(position), labels, others | set(equation.result))
        total = term if total is None else contraction.product(total, term, later[position])
    assert total is not None
    total = contraction.summed(total, set(equation.result))
    return [contraction.ordered(total, equation.result)]


register(
    name="Einsum",
    infer=_infer,
    attributes=EinsumAttributes,
    expand=_expand,
    types=(NUMERIC,),
)
