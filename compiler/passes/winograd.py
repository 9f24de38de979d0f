"""Convolutions of 3 by 3 as products of transformed tiles, where the target says that it pays."""

from __future__ import annotations

from functools import cache

import numpy as np

from ...runtime.plan.dtypes import FLOAT16
from ..compilation import Compilation
from ..ir.graph import Node, Value
from ..ops.math.winograd import TAPS, transform
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule
from ..symbolic import polynomial as ix
from ..tuning.config_choice import problem_key
from ..tuning.winograd_tiles import WinogradProblem, possible_outputs, tile_outputs
from .patterns import is_narrow, view

#: Family of the problems whether and how to transform
FAMILY = "winograd"

#: Most entries of the matrix of one point: its transform has a thread for some of them, in one dimension of the grid
_WEIGHT_ENTRIES = 1 << 20


def winograd_rule(compilation: Compilation) -> Rule:
    """Return the rewrite for one graph: equal layers are costed once."""
    target = compilation.target
    modelled = cache(lambda problem: tile_outputs(problem, target))

    def outputs_of(match: Match) -> int | None:
        images, features, height, width = map(ix.number, match.root.output.shape)
        channels = ix.number(match["value"].shape[1])
        problem = WinogradProblem(images, height, width, channels, features)
        key = problem_key(FAMILY, images=images, height=height, width=width, channels=channels, features=features)
        best = modelled(problem)
        others = [each for each in possible_outputs(problem, target) if each != best]
        return compilation.choices.choose(key, [best, *others], match.root.origins)

    def match(node: Node, facts: GraphFacts) -> Match | None:
        attributes = node.attributes
        plain = attributes.strides == attributes.dilations == (1, 1) and attributes.group == 1
        if attributes.kernel != (TAPS, TAPS) or not plain or facts.is_constant(node.operand(0)):
            return None
        return Match((node,), {"value": node.operand(0), "weight": node.operand(1)})

    def check(match: Match, facts: GraphFacts) -> str | None:
        value, weight, result = match["value"], match["weight"], match.root.output
        if value.dtype.name != "float32":
            return f"tiles of {value.dtype} are not transformed"
        if not facts.is_constant(weight):
            return "the weight is not constant"
        if is_narrow(weight, FLOAT16.bits) and not target.transforms_bytes:
            return "the weight's codes are smaller than their transforms"
        if not all(isinstance(size, int) for size in (*value.shape, *result.shape)):
            return "a size is declared dynamic"
        if value.shape[1] % 4 or result.shape[1] % 4 or 0 in result.shape:
            return "the channels are no whole vectors"
        if value.shape[1] * result.shape[1] > _WEIGHT_ENTRIES:
            return "the weight has too many channels"
        if outputs_of(match) is None:
            return "a direct sum is faster"
        return None

    def rewrite(builder: GraphBuilder, match: Match) -> Value:
        outputs = outputs_of(match)
        assert outputs is not None
        value, weight, result = match["value"], match["weight"], match.root.output
        spatial, begins = tuple(result.shape[2:]), tuple(match.root.attributes.pads[:2])
        points = builder.op("WinogradInput", value, domain="loom", outputs=outputs, begins=begins, spatial=spatial)
        products = builder.op("MatMul", points, _weight(builder, weight, outputs), domain="loom")
        return builder.op(
            "WinogradOutput", products, domain="loom", outputs=outputs, images=result.shape[0], spatial=spatial
        )

    return Rule("winograd", frozenset({"loom.Convolution"}), match, rewrite, check)


def _weight(builder: GraphBuilder, weight: Value, outputs: int) -> Value:
    """Transform a weight [O, C, 3, 3] to [points, C, O] by one product of all filters with the 2-D transform."""
    matrix = np.asarray(transform(outputs).weight)
    both = builder.constant(np.kron(matrix, matrix).astype(np.float32))
    features, channels = weight.shape[:2]
    taps = builder.op("Transpose", view(builder, weight, (features, channels, TAPS**2)), perm=(2, 1, 0))
    columns = view(builder, taps, (TAPS**2, channels * features))
    transformed = builder.op("MatMul", both, columns, domain="loom")
    return view(builder, transformed, (both.shape[0], channels, features))
