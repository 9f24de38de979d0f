"""A Pad of the spatial axes becomes padding of the convolution or pool that reads it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ..ir.graph import Node, Value
from ..ops.onnx.padding import axis_pads
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule
from ..symbolic import polynomial as ix
from .patterns import is_filled_with, produced_by, static_numbers

#: operators without a negative result
_NOT_NEGATIVE = ("Relu", "Sigmoid", "HardSigmoid", "Exp", "Abs", "Softplus")


def _match(node: Node, facts: GraphFacts) -> Match | None:
    pad = produced_by(node.operand(0), "Pad")
    if pad is None:
        return None
    return Match((node, pad), {"value": pad.operand(0), "pad": pad})


def _check(match: Match, facts: GraphFacts) -> str | None:
    node, pad = match.nodes
    if pad.attributes.mode != "constant":
        return f"mode {pad.attributes.mode} of the Pad repeats elements"
    sizes = axis_pads(pad)
    if any(axis.adds for axis in sizes[:2]):
        return "the Pad adds batches or channels"
    for axis, size in zip(sizes, match["value"].shape):
        if isinstance(axis.before, ix.Index) or isinstance(axis.after, ix.Index):
            return "the number of padded elements is not known"
        if axis.inner != size:
            return "the Pad cuts elements off"
    if node.op == "Convolution":
        return _check_zero(pad)
    return _check_pool(match)


def _check_zero(pad: Node) -> str | None:
    fill = pad.optional(2)
    if fill is None:
        return None
    # The sign of a zero does not matter: it is multiplied by weights and summed.
    return None if is_filled_with(fill, 0.0) or is_filled_with(fill, -0.0) else "the Pad does not fill with zeros"


def _check_pool(match: Match) -> str | None:
    node, pad = match.nodes
    kind = node.attributes.kind
    if kind == "max":
        return _check_max(match)
    if kind == "average" and any(node.attributes.pads) and not node.attributes.count_include_pad:
        return "the pool counts the elements of the Pad, but not those of its own padding"
    if kind == "average" and any(_overhang(node)):
        return "windows reach beyond the padding"
    return _check_zero(pad)


def _overhang(node: Node) -> list[bool]:
    """Return for each spatial axis whether the last window (with ceil_mode) extends past the padded input."""
    attributes = node.attributes
    count = len(attributes.kernel)
    result = []
    for axis, size in enumerate(node.operand(0).shape[2:]):
        windows = attributes.output_spatial[axis]
        last = ix.multiply(ix.add(windows, -1), attributes.strides[axis])
        reach = ix.add(last, (attributes.kernel[axis] - 1) * attributes.dilations[axis] + 1)
        padded = ix.add(size, attributes.pads[axis] + attributes.pads[count + axis])
        result.append(ix.bounds(ix.add(reach, ix.multiply(padded, -1)))[1] > 0)
    return result


def _check_max(match: Match) -> str | None:
    """Return why a Pad must not be folded into a max pool, or None.

    The pool's own padding never wins; the Pad's zeros do not either if no element is negative and no window is empty.
    """
    node, pad = match.nodes
    fill = static_numbers(pad.optional(2))
    dtype = pad.output.dtype
    lowest = -math.inf if dtype.is_float else np.iinfo(dtype.numpy).min
    if fill is not None and bool((fill == lowest).all()):
        return None
    if _check_zero(pad) is not None:
        return "the Pad fills with a number that could win"
    producer = match["value"].producer
    if producer is None or producer.op not in _NOT_NEGATIVE:
        return "zeros of the Pad could win over negative elements"
    attributes = node.attributes
    count = len(attributes.kernel)
    for axis, added in enumerate(axis_pads(pad)[2:]):
        begin = attributes.pads[axis] + int(added.before)  # type: ignore[arg-type]
        end = attributes.pads[count + axis] + int(added.after)  # type: ignore[arg-type]
        if attributes.dilations[axis] != 1 or max(begin, end) >= attributes.kernel[axis] or any(_overhang(node)):
            return "a window may lie in the padding alone"
        if ix.bounds(match["value"].shape[2 + axis])[0] < 1:
            return "a window may lie in the padding alone"
    return None


def _absorb(builder: GraphBuilder, match: Match) -> Value:
    node, pad = match.nodes
    attributes = node.attributes
    count = len(attributes.kernel)
    added = axis_pads(pad)[2:]
    extra = [*(axis.before for axis in added), *(axis.after for axis in added)]
    pads = tuple(own + int(more) for own, more in zip(attributes.pads, extra))  # type: ignore[arg-type]
    assert len(pads) == 2 * count
    changed = dataclasses.replace(attributes, pads=pads)
    if node.op == "Pool" and attributes.kind == "average":
        changed = dataclasses.replace(changed, count_include_pad=True)
    return builder.emit(registry.of(node), [match["value"], *node.inputs[1:]], changed)[0]


ABSORB_PAD = Rule("pad-into-window", frozenset({"loom.Convolution", "loom.Pool"}), _match, _absorb, _check)

RULES = (ABSORB_PAD,)
