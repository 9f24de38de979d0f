"""The worklist driver: when rules apply, what it reports, and the invariants that it keeps."""

import numpy as np
import pytest

import shaderloom.compiler.ops  # noqa: F401  (fills the registry)
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.ir.graph import Graph, verify
from shaderloom.compiler.ir.origins import merge_origins
from shaderloom.compiler.rewriting.builder import GraphBuilder
from shaderloom.compiler.rewriting.rules import GraphFacts, Match, Rule, apply_rules
from shaderloom.runtime.plan.dtypes import FLOAT32
from shaderloom.runtime.plan.errors import InternalError, Origin


def _origin(index: int) -> Origin:
    return Origin("main", index, "Test")


def _chain(*operators: str) -> Graph:
    """x -> operators one after the other -> y; node i comes from ONNX node i."""
    graph = Graph("g")
    value = graph.add_input("x", FLOAT32, (3, 4))
    for index, name in enumerate(operators):
        value = GraphBuilder(graph, (_origin(index),)).op(name, value)
    graph.outputs, graph.output_names = [value], ["y"]
    return graph


def _ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def _pair(outer: str, inner: str):
    """Matches ``outer(inner(value))``."""

    def match(node, facts):
        producer = node.operand(0).producer
        if producer is None or producer.op != inner:
            return None
        return Match((node, producer), {"value": producer.operand(0)})

    return frozenset({outer}), match


def _cancel(outer: str, inner: str, check=None) -> Rule:
    operators, match = _pair(outer, inner)
    fields = {} if check is None else {"check": check}
    return Rule(f"{outer}-of-{inner}", operators, match, lambda builder, match: match["value"], **fields)


def _become(outer: str, inner: str, new: str) -> Rule:
    operators, match = _pair(outer, inner)
    return Rule(f"{new}-instead", operators, match, lambda builder, match: builder.op(new, match["value"]))


def test_a_rewrite_makes_the_next_one_possible():
    graph = _chain("Exp", "Neg", "Neg", "Log")
    count = apply_rules(graph, [_cancel("Neg", "Neg"), _cancel("Log", "Exp")], Compilation())
    assert count == 2
    assert graph.nodes == []
    assert graph.outputs == graph.inputs
    verify(graph)


def test_new_nodes_stand_where_the_root_stood_and_name_all_origins():
    graph = _chain("Abs", "Exp", "Neg", "Sqrt")
    apply_rules(graph, [_become("Neg", "Exp", "Tanh")], Compilation())
    assert _ops(graph) == ["Abs", "Tanh", "Sqrt"]
    assert tuple(graph.nodes[1].origins) == (_origin(1), _origin(2))
    verify(graph)


def test_the_producer_of_a_replacement_takes_over_the_origins():
    graph = _chain("Abs", "Neg", "Neg")
    apply_rules(graph, [_cancel("Neg", "Neg")], Compilation())
    assert _ops(graph) == ["Abs"]
    assert tuple(graph.nodes[0].origins) == (_origin(0), _origin(1), _origin(2))


def test_inner_nodes_that_others_read_stay():
    graph = _chain("Neg", "Neg")
    graph.outputs.append(graph.nodes[0].output)
    graph.output_names.append("inner")
    apply_rules(graph, [_cancel("Neg", "Neg")], Compilation())
    assert _ops(graph) == ["Neg"]
    verify(graph)


def test_refusals_are_reported_with_their_reason_once():
    graph = _chain("Neg", "Neg")
    remarks = []
    refused = _cancel("Neg", "Neg", check=lambda match, facts: "not today")
    assert apply_rules(graph, [refused, _cancel("Neg", "Neg")], Compilation(remarks=remarks)) == 1
    assert [(entry.rule, entry.refused) for entry in remarks] == [("Neg-of-Neg", "not today"), ("Neg-of-Neg", None)]
    assert tuple(remarks[0].origins) == (_origin(0), _origin(1))


def test_the_first_rule_that_may_is_applied():
    graph = _chain("Exp", "Neg")
    apply_rules(graph, [_become("Neg", "Exp", "Tanh"), _become("Neg", "Exp", "Sqrt")], Compilation())
    assert _ops(graph) == ["Tanh"]


def test_a_chain_is_seen_again_when_its_far_end_changes():
    """The root of a pattern of three nodes was visited before the rewrite that completes it."""

    def match(node, facts):
        middle = node.operand(0).producer
        inner = middle.operand(0).producer if middle is not None else None
        if inner is None or middle.op != "Abs" or inner.op != "Tanh":
            return None
        return Match((node, middle, inner), {"value": inner.operand(0)})

    root = Rule("three", frozenset({"Sqrt"}), match, lambda builder, match: builder.op("Sin", match["value"]))
    # Neg-of-Exp is completed late: its own root must be visited twice.
    late = [_become("Neg", "Exp", "Tanh"), _become("Exp", "Log", "Exp")]
    graph = _chain("Log", "Exp", "Neg", "Abs", "Sqrt")
    apply_rules(graph, [root, *late], Compilation())
    assert _ops(graph) == ["Sin"]


def test_rules_that_undo_each_other_are_an_error():
    graph = _chain("Abs", "Neg")
    rules = [_become("Neg", "Abs", "Neg"), Rule("back", frozenset({"Neg"}), lambda node, facts: Match((node,)), _again)]
    with pytest.raises(InternalError, match="the rewrites do not end"):
        apply_rules(graph, rules, Compilation())


def _again(builder, match):
    return builder.op("Neg", builder.op("Abs", match.root.operand(0)))


def test_a_result_of_another_shape_is_an_error():
    rule = Rule(
        "wrong",
        frozenset({"Neg"}),
        lambda node, facts: Match((node,)),
        lambda builder, match: builder.op("View", match.root.operand(0), domain="loom", shape=(12,)),
    )
    with pytest.raises(InternalError, match="rule 'wrong' gives"):
        apply_rules(_chain("Neg"), [rule], Compilation())


def test_facts_know_constants_through_nodes():
    graph = Graph("g")
    value = graph.add_input("x", FLOAT32, (2,))
    builder = GraphBuilder(graph)
    large = builder.constant(np.ones((200, 200), np.float32))
    made = builder.op("Neg", builder.op("Neg", large))
    mixed = builder.op("Add", builder.op("Reshape", value, builder.constant(np.array([1, 2]))), value)
    facts = GraphFacts(graph)
    assert made.producer is not None, "too large for the host"
    assert facts.is_constant(large)
    assert facts.is_constant(made)
    assert not facts.is_constant(mixed)
    assert not facts.is_constant(value)


def test_origins_merge_in_the_order_of_the_model():
    graph = _chain("Abs", "Neg", "Exp")
    last, first = graph.nodes[2], graph.nodes[0]
    assert tuple(merge_origins([last, first, last])) == (_origin(0), _origin(2))


def test_long_chains_take_linear_work():
    """Visits of rules, not time: four times the nodes, four times the visits."""
    visits = []

    def match(node, facts):
        visits.append(node)
        return None

    counts = []
    for length in (2000, 8000):
        visits.clear()
        graph = _chain(*["Neg"] * length, "Abs")
        apply_rules(graph, [_cancel("Neg", "Neg"), Rule("look", frozenset(), match, _again)], Compilation())
        assert _ops(graph) == ["Abs"]
        counts.append(len(visits))
    assert counts[1] <= 4.2 * counts[0]
