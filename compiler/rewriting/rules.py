"""Rewrite rules and the worklist that applies them.

A :class:`Rule` has three steps.  ``match`` recognises a pattern by structure alone and binds its parts.  ``check``
decides whether the rewrite is allowed and gives the *reason* when it is not; only what matched but was refused is worth
telling people.  ``rewrite`` builds the replacement of the root's result.

The driver keeps these invariants:

* a rewrite replaces the single output of the match's root by a value of the same type and shape;
* new nodes stand where the root stood, so the order of nodes stays topological;
* new nodes have the origins of every node of the match; when the replacement existed before, its producer gets them;
* a node is looked at again only when its operands or the uses of them changed, so a run is linear in the number of
  nodes plus that of rewrites.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

from ...runtime.plan.errors import InternalError, ShaderloomError
from ...runtime.plan.record import record
from ..compilation import Compilation
from ..ir.dataflow import operands, post_order
from ..ir.graph import Graph, Node, Value
from ..ir.origins import merge_origins
from ..options import DEFAULT_LIMITS, Limits
from ..remarks import Remark
from ..symbolic import polynomial as ix
from .builder import GraphBuilder


@record(slots=False)
class Match:
    """The nodes that a rewrite takes the place of, root first, and the parts that the pattern bound by name."""

    nodes: tuple[Node, ...]
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> Node:
        return self.nodes[0]

    def __getitem__(self, name: str) -> Any:
        return self.parts[name]


def is_static(node: Node) -> bool:
    """Return whether no result shape and no attribute of ``node`` depends on a declared dynamic dimension."""
    if any(isinstance(size, ix.Index) for value in node.outputs for size in value.shape):
        return False
    if not dataclasses.is_dataclass(node.attributes):
        return True
    return not any(_mentions_index(getattr(node.attributes, each.name)) for each in dataclasses.fields(node.attributes))


def _mentions_index(attribute: Any) -> bool:
    if isinstance(attribute, tuple):
        return any(map(_mentions_index, attribute))
    return isinstance(attribute, ix.Index)


class GraphFacts:
    """Facts about the graph beyond a node's own neighbourhood, for rules."""

    def __init__(self, graph: Graph, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self._outputs = {id(value) for value in graph.outputs}
        self._constant: dict[Value, bool] = {}

    def is_output(self, value: Value) -> bool:
        return id(value) in self._outputs

    def single_use(self, value: Value) -> bool:
        """Return whether exactly one operand position reads ``value`` and nothing else needs it."""
        return len(value.uses) == 1 and not self.is_output(value)

    def is_constant(self, value: Value) -> bool:
        """Return whether ``value`` depends on constants alone, not even on dynamic dimensions.

        Rewrites preserve meaning, so an answer stays valid.
        """
        decided = self._constant
        for current in post_order([value], lambda operand: () if operand in decided else operands(operand)):
            if current in decided:
                continue
            if current.producer is None:
                decided[current] = current.is_constant
            else:
                read = operands(current)
                decided[current] = bool(read) and all(map(decided.get, read)) and is_static(current.producer)
        return decided[value]

    def replaced(self, old: Value, new: Value) -> None:
        if id(old) in self._outputs:
            self._outputs.remove(id(old))
            self._outputs.add(id(new))


def _accept(match: Match, facts: GraphFacts) -> str | None:
    return None


@record(slots=False)
class Rule:
    """One rewrite.  ``operators`` are the roots it looks at: ONNX names, ``loom.`` before internal ones; empty: all."""

    name: str
    operators: frozenset[str]
    match: Callable[[Node, GraphFacts], Match | None]
    rewrite: Callable[[GraphBuilder, Match], Value]
    check: Callable[[Match, GraphFacts], str | None] = _accept


def operator_key(node: Node) -> str:
    return f"{node.domain}.{node.op}" if node.domain else node.op


def apply_rules(graph: Graph, rules: Sequence[Rule], compilation: Compilation) -> int:
    """Apply ``rules`` until none matches, restore order and remove dead nodes; return the number of rewrites."""
    return _Driver(graph, rules, compilation).run()


class _Driver:
    #: rewrites for each node that the graph had; rules that undo each other would never end
    MAX_REWRITES = 64
    #: the longest chain of nodes in a pattern; a branch ends a chain, as rules refuse what others read too
    PATTERN_DEPTH = 4

    def __init__(self, graph: Graph, rules: Sequence[Rule], compilation: Compilation) -> None:
        self.graph = graph
        self.limits = compilation.limits
        self.remarks = compilation.remarks
        self.facts = GraphFacts(graph, compilation.limits)
        self.rules = list(rules)
        self.table: dict[str, list[Rule]] = {}
        self.pending: deque[Node] = deque(graph.nodes)
        self.queued = set(graph.nodes)
        self.dead: set[Node] = set()
        self.before: dict[Node, list[Node]] = {}  #: nodes made in place of a node
        self.refused: set[tuple[str, Node, str]] = set()

    def run(self) -> int:
        allowed = self.MAX_REWRITES * (len(self.graph.nodes) + 16)
        count = 0
        while self.pending:
            node = self.pending.popleft()
            self.queued.discard(node)
            if node in self.dead or len(node.outputs) != 1:
                continue
            rule = self._visit(node)
            if rule is not None:
                count += 1
                if count > allowed:
                    raise InternalError(f"the rewrites do not end; the last was '{rule.name}'", origin=node.origin)
        if count:
            self.graph.nodes = list(self._in_order())
            self.graph.remove_dead()
            self.graph.sort()
        return count

    def _rules_of(self, node: Node) -> list[Rule]:
        key = operator_key(node)
        rules = self.table.get(key)
        if rules is None:
            rules = self.table[key] = [rule for rule in self.rules if not rule.operators or key in rule.operators]
        return rules

    def _visit(self, node: Node) -> Rule | None:
        """Apply the first rule that can be applied to ``node``."""
        for rule in self._rules_of(node):
            match = rule.match(node, self.facts)
            if match is None:
                continue
            refused = rule.check(match, self.facts)
            if refused is None:
                self._apply(rule, match)
                return rule
            if self.remarks is not None and (rule.name, node, refused) not in self.refused:
                self.refused.add((rule.name, node, refused))
                self.remarks.append(Remark(rule.name, merge_origins(match.nodes), node.op, refused))
        return None

    def _apply(self, rule: Rule, match: Match) -> None:
        root, old = match.root, match.root.output
        origins = merge_origins(match.nodes)
        start = len(self.graph.nodes)
        try:
            new = rule.rewrite(GraphBuilder(self.graph, origins, self.limits), match)
        except ShaderloomError as error:
            error.origin = error.origin or root.origin
            raise
        replacement = self.graph.nodes[start:]
        del self.graph.nodes[start:]
        if new.dtype != old.dtype or new.shape != old.shape:
            raise InternalError(f"rule '{rule.name}' gives {new!r} for {old!r}", origin=root.origin)
        if self.remarks is not None:
            self.remarks.append(Remark(rule.name, origins, root.op))
        self.before.setdefault(root, []).extend(replacement)
        if new.producer is not None and new.producer not in replacement:
            new.producer.origins = merge_origins([new.producer, *match.nodes])
        self.facts.replaced(old, new)
        self.graph.replace(old, new)
        self._remove(root)
        self._enqueue([*replacement, *([new.producer] if new.producer else []), *self._readers(new)])

    def _readers(self, value: Value) -> list[Node]:
        """Return the nodes whose patterns may reach ``value``: its readers, then unbranched chains of their readers."""
        readers = list(value.users)
        level = readers
        for _ in range(self.PATTERN_DEPTH - 1):
            level = [node.output.user for node in level if len(node.outputs) == 1 and len(node.output.uses) == 1]
            readers = readers + level
        return readers

    def _remove(self, root: Node) -> None:
        """Detach ``root`` and what only it needed; nodes whose operand lost a reader are looked at again."""
        stack = [root]
        while stack:
            node = stack.pop()
            if node in self.dead or any(value.uses or self.facts.is_output(value) for value in node.outputs):
                continue
            self.dead.add(node)
            for position, value in enumerate(node.inputs):
                if value is None:
                    continue
                self.graph.set_input(node, position, None)
                if not value.uses and value.producer is not None:
                    stack.append(value.producer)
                elif len(value.uses) == 1:
                    self._enqueue([value.user, *([value.producer] if value.producer else [])])

    def _enqueue(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node not in self.queued and node not in self.dead:
                self.queued.add(node)
                self.pending.append(node)

    def _in_order(self) -> Iterable[Node]:
        """Yield the remaining nodes in order, with new nodes in place of the root of their rewrite."""
        stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(self.graph.nodes)]
        while stack:
            node, expanded = stack.pop()
            replacement = () if expanded else self.before.get(node, ())
            if replacement:
                stack.append((node, True))
                stack.extend((inner, False) for inner in reversed(replacement))
            elif node not in self.dead:
                yield node
