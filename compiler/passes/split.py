"""Products whose terms are shared among workgroups, where their results are too few for a GPU.

A sum over k becomes ``parts`` sums over a part of k, computed as so many batches (groups of a convolution), and a
reduction that adds them in order.  The reduction takes what the product's kernel would have taken: bias, activation,
residual.  This is a rewrite of the graph, so every kernel, layout and fusion works on the result as on any other
product.  Only for f32: sums of parts are stored.
"""

from __future__ import annotations

import dataclasses

from ..compilation import Compilation
from ..ir.graph import Graph, Node, Shape, Value
from ..ops.registry import registry
from ..rewriting.builder import GraphBuilder
from ..rewriting.rules import GraphFacts, Match, Rule, apply_rules
from ..tuning import gemm_tiles
from ..tuning.config_choice import problem_key
from .patterns import view

#: Family of the problems into how many parts to split
FAMILY = "split"


def split_products(
    graph: Graph,
    compilation: Compilation,
) -> int:
    """Split products that the target would run faster in parts; return the number of changes."""
    return apply_rules(graph, rules(compilation), compilation)


def rules(compilation: Compilation) -> tuple[Rule, ...]:
    """Return the rules that split products of matrices and convolutions."""
    target = compilation.target

    def parts_of(node: Node, problem: gemm_tiles.Problem, extent: int, window: str) -> int:
        modelled = gemm_tiles.split_parts(problem, extent, target)
        possible = [1, *gemm_tiles.possible_parts(problem, extent, target)]
        key = problem_key(FAMILY, m=problem.m, n=problem.n, k=problem.k, extent=extent, window=window)
        if possible == [modelled]:
            return modelled
        return compilation.choices.choose(
            key, [modelled, *(parts for parts in possible if parts != modelled)], node.origins
        )

    def match_matrices(node: Node, facts: GraphFacts) -> Match | None:
        left, right = node.operand(0), node.operand(1)
        if left.rank != 2 or right.rank != 2 or not _applies(node, facts):
            return None
        (m, k), n = left.shape, right.shape[1]
        m, n, k = _count((m,)), _count((n,)), _count((k,))
        parts = parts_of(node, gemm_tiles.Problem(m, n, k), k, "none")
        return Match((node,), {"parts": parts}) if parts > 1 else None

    def match_convolution(node: Node, facts: GraphFacts) -> Match | None:
        if node.attributes.group != 1 or not _applies(node, facts):
            return None
        weight, result = node.operand(1), node.output
        outputs, channels, *kernel = weight.shape
        problem = gemm_tiles.Problem(
            _count((result.shape[0], *result.shape[2:])), _count((outputs,)), _count((channels, *kernel))
        )
        parts = parts_of(node, problem, _count((channels,)), "x".join(map(str, kernel)))
        return Match((node,), {"parts": parts}) if parts > 1 else None

    return (
        Rule("split-matrix-product", frozenset({"loom.MatMul"}), match_matrices, _split_matrices),
        Rule("split-convolution", frozenset({"loom.Convolution"}), match_convolution, _split_convolution),
    )


def _applies(node: Node, facts: GraphFacts) -> bool:
    """Return whether the node depends on run-time inputs, is f32, and has only constant, positive sizes."""
    values = (node.operand(0), node.operand(1), node.output)
    if node.output.dtype.name != "float32" or facts.is_constant(node.output):
        return False
    return all(isinstance(size, int) and size > 0 for value in values for size in value.shape)


def _count(shape: Shape) -> int:
    result = 1
    for size in shape:
        assert isinstance(size, int), "only products with known sizes are split"
        result *= size
    return result


def _split_matrices(builder: GraphBuilder, match: Match) -> Value:
    node, parts = match.root, match["parts"]
    left, right = node.operand(0), node.operand(1)
    m, k = left.shape
    share = _count((k,)) // parts
    rows = builder.op("Transpose", view(builder, left, (m, parts, share)), perm=(1, 0, 2))
    product = builder.op("MatMul", rows, view(builder, right, (parts, share, right.shape[1])), domain="loom")
    return builder.op("Reduce", product, domain="loom", kind="sum", axes=(0,), keepdims=False)


def _split_convolution(builder: GraphBuilder, match: Match) -> Value:
    """Group ``g`` of the new convolution has the g-th part of the channels and all outputs."""
    node, parts = match.root, match["parts"]
    value, weight, result = node.operand(0), node.operand(1), node.output
    outputs, channels, *kernel = weight.shape
    share = _count((channels,)) // parts
    apart = view(builder, weight, (outputs, parts, share, *kernel))
    axes = (1, 0, *range(2, 3 + len(kernel)))
    grouped = view(builder, builder.op("Transpose", apart, perm=axes), (_count((outputs,)) * parts, share, *kernel))
    attributes = dataclasses.replace(node.attributes, group=parts)
    product = builder.emit(registry.of(node), [value, grouped], attributes)[0]
    stacked = view(builder, product, (result.shape[0], parts, *result.shape[1:]))
    return builder.op("Reduce", stacked, domain="loom", kind="sum", axes=(1,), keepdims=False)
