"""Growing a model: nodes one after the other, each evaluated as it is added, so that shapes and elements are known.

About half of all operands are results of nodes before, mostly recent ones; so there are chains, shared subexpressions
and operands used twice.  Convolutions and pools stand between transposes now and then, where layouts meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.defs
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from . import rules  # noqa: F401  (fills the table of rules)
from .exclusions import EXCLUDED
from .forms import CONTRIBUTED, OLDEST, Form, Formal, drawn_definitions, form_of
from .node import MOST_ELEMENTS, NodeDraw
from .oracle import HALVES, Known, compute, exactly
from .source import Drawn, Seeded, Source, Unsuitable, choose, rarely

MOST_NODES = 12
#: opsets of models, the newest first, where most differences are
OPSETS = (
    *(opset for opset in (21, 17, 13, 23, 24, 26, 22, 20, 19, 18) if opset <= onnx.defs.onnx_opset_version()),
    onnx.defs.onnx_opset_version(),
    *(16, 15, 14, 12, 11, 10, 9, 8, OLDEST),
)
SPATIAL = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "InstanceNormalization", "Resize"})


def vocabulary(opset: int) -> dict[str, list[Form]]:
    """Forms at an opset by how the registry lowers them: each way is as likely as the others."""
    found: dict[str, list[Form]] = {"element": [], "gather": [], "family": [], "expand": [], "contributed": []}
    for definition in drawn_definitions():
        if (definition.domain, definition.name) in EXCLUDED:
            continue
        form = form_of(definition.name, definition.domain, opset)
        if form is None:
            continue
        ways = ("element", "gather", "family")
        way = next((way for way in ways if getattr(definition, way) is not None), "expand")
        found["contributed" if definition.domain else way].append(form)
    return found


_VOCABULARIES: dict[int, dict[str, list[Form]]] = {}


class Growth:
    """A model under construction."""

    def __init__(self, source: Source, opset: int, seed: int, *, inputs_only: bool = False) -> None:
        self.source = source
        self.opset = opset
        self.inputs_only = inputs_only  #: no initializers but those of given elements, and those are constants
        self.generator = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.forms: list[tuple[Form, list[str]]] = []
        self.values: list[Known] = []
        self.known: dict[str, Known] = {}  #: all values, also those that nobody else reads
        self.feeds: dict[str, np.ndarray] = {}
        self.initializers: dict[str, np.ndarray] = {}
        self.staged = False  #: a given operand became an input
        self.leaves = 0

    # -- leaves ----------------------------------------------------------------------------------------------------

    def data(self, dtype: str, shape: Sequence[int], low: float | None, high: float | None) -> np.ndarray:
        """Elements of a realistic scale; floats are multiples of 1/8, so that sums of them are exact."""
        if dtype == "bool":
            return np.asarray(self.generator.integers(0, 2, shape)).astype(np.bool_)
        unsigned, real = dtype.startswith("uint"), dtype in ("float32", *HALVES)
        low = (-2 if real else 0 if unsigned else -9) if low is None else max(low, 0) if unsigned else low
        high = (2 if real else 20 if unsigned else 9) if high is None else high
        step = 8 if real else 1
        numbers = np.asarray(self.generator.integers(int(np.ceil(low * step)), int(high * step) + 1, shape))
        kind = helper.tensor_dtype_to_np_dtype(_code(dtype))
        return (numbers / step).astype(kind) if real else numbers.astype(kind)

    def leaf(self, dtype: str, shape: tuple[int, ...], low: float | None = None, high: float | None = None) -> Known:
        if int(np.prod(shape)) > MOST_ELEMENTS:
            raise Unsuitable
        value = self.add(self.data(dtype, shape, low, high), not self.inputs_only and bool(self.source.integer(0, 1)))
        self.values.append(value)
        return value

    def given(self, array: np.ndarray, *, constant: bool = False) -> Known:
        computed = not (constant or self.inputs_only) and rarely(self.source, 16)
        self.staged |= computed
        return self.add(array, not computed)

    def add(self, array: np.ndarray, constant: bool) -> Known:
        """An initializer or input that no other node picks."""
        self.leaves += 1
        value = exactly(f"v{self.leaves}", array)
        (self.initializers if constant else self.feeds)[value.name] = array
        self.known[value.name] = value
        return value

    # -- nodes -----------------------------------------------------------------------------------------------------

    def forms_here(self) -> dict[str, list[Form]]:
        if self.opset not in _VOCABULARIES:
            _VOCABULARIES[self.opset] = vocabulary(self.opset)
        return _VOCABULARIES[self.opset]

    def grow(self, keep: Callable[[Form], bool] = lambda form: True) -> None:
        """Add a node of any operator, if one of a few that are drawn fits."""
        ways = [way for way, forms in self.forms_here().items() if any(map(keep, forms))]
        for _ in range(4):
            forms = [form for form in self.forms_here()[choose(self.source, ways)] if keep(form)]
            if self.attempt(choose(self.source, forms)):
                return

    def attempt(self, form: Form) -> bool:
        """Add a node of an operator; False, and nothing changed, if what was drawn does not fit."""
        state = (len(self.nodes), len(self.values), set(self.known), self.staged)
        try:
            if form.name in SPATIAL and rarely(self.source, 3):
                self._between_transposes(form)
            else:
                self.node(form)
        except Unsuitable:
            nodes, values, names, self.staged = state
            del self.nodes[nodes:], self.forms[nodes:], self.values[values:]
            for name in set(self.known) - names:
                del self.known[name]
                self.feeds.pop(name, None)
                self.initializers.pop(name, None)
            return False
        return True

    def node(self, form: Form) -> list[Known]:
        operands, attributes, outputs = NodeDraw(self, form).draw()
        return self.append(form, operands, attributes, outputs)

    def append(
        self, form: Form, operands: Sequence[Known | None], attributes: dict[str, Any], outputs: int = 1
    ) -> list[Known]:
        """Add and evaluate a node; raises :class:`Unsuitable`."""
        names = [f"n{len(self.nodes)}_{position}" for position in range(outputs)]
        proto = helper.make_node(
            form.name,
            ["" if operand is None else operand.name for operand in operands],
            names,
            f"node{len(self.nodes)}",
            domain=form.domain,
            **attributes,
        )
        types = _result_types(form, operands, outputs)
        results = compute(form, proto, operands, self.opset, types)
        if any(result.array.size > MOST_ELEMENTS or result.rank > 8 for result in results):
            raise Unsuitable
        self.nodes.append(proto)
        self.forms.append((form, types))
        self.values += results
        self.known.update((result.name, result) for result in results)
        return results

    def _between_transposes(self, form: Form) -> None:
        """The channels are last before and after the node, as other frameworks have them."""
        transpose = form_of("Transpose", "", self.opset)
        images = [value for value in self.values if value.dtype == "float32" and value.rank == 4]
        image = images[-1] if images else self.leaf("float32", tuple(self.source.integer(1, 6) for _ in range(4)))
        if transpose is None or 0 in image.shape:
            raise Unsuitable
        self.append(transpose, [image], {"perm": [0, 3, 1, 2]})
        result = self.node(form)[0]
        if result.rank == 4:
            self.append(transpose, [result], {"perm": [0, 2, 3, 1]})

    # -- the model -------------------------------------------------------------------------------------------------

    def outputs(self) -> list[Known]:
        """What nobody reads, a few values that somebody does, seldom an input as it is."""
        computed = [value for value in self.values if value.name.startswith("n")]
        used = {name for node in self.nodes for name in node.input}
        found = {value.name: value for value in computed if value.name not in used}
        for _ in range(self.source.integer(0, 2)):
            value = choose(self.source, computed)
            found.setdefault(value.name, value)
        if self.feeds and rarely(self.source, 16):
            name = choose(self.source, sorted(self.feeds))
            found[name] = self.known[name]
        return list(found.values())

    def model(self, outputs: Sequence[Known], dims: Mapping[str, Sequence[int | str]] | None = None) -> onnx.ModelProto:
        def port(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
            shape = (dims or {}).get(name, array.shape)
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)

        graph = helper.make_graph(
            self.nodes,
            "random",
            [port(name, array) for name, array in self.feeds.items()],
            [helper.make_tensor_value_info(value.name, _code(value.dtype), None) for value in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.initializers.items()],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIBUTED, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8 if self.opset < 20 else 10)

    def replayed(self, feeds: dict[str, np.ndarray]) -> dict[str, Known]:
        """All values for other inputs; raises :class:`Unsuitable` where a node does not fit them."""
        known = {name: exactly(name, array) for name, array in {**self.initializers, **feeds}.items()}
        for node, (form, types) in zip(self.nodes, self.forms):
            operands = [known[name] if name else None for name in node.input]
            known.update((value.name, value) for value in compute(form, node, operands, self.opset, types))
        return known


def _code(dtype: str) -> int:
    from shaderloom.runtime.dtypes import BY_NAME

    return BY_NAME[dtype].onnx


def _result_types(form: Form, operands: Sequence[Known | None], outputs: int) -> list[str]:
    """The type of each output where an operand of its type parameter tells it, or "half" where any half might be."""
    formals = [*form.inputs, *form.inputs[-1:] * len(operands)]
    bound = {formal.variable: each.dtype for formal, each in zip(formals, operands) if each is not None}
    found = [*form.outputs, *form.outputs[-1:] * outputs][:outputs]
    return [_bound(formal, bound) for formal in found]


def _bound(formal: Formal, bound: dict[str, str]) -> str:
    """A type parameter that no operand binds (a cache that is not there yet) has the halves of the others."""
    if formal.variable in bound:
        return bound[formal.variable]
    half = next((dtype for dtype in bound.values() if dtype in HALVES), "")
    return f"{half}?" if half in formal.types else ""


@dataclass
class RandomGraph:
    """A model with its inputs and what it computes."""

    growth: Growth
    outputs: list[Known]

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return self.growth.feeds

    def model(self, dims: Mapping[str, Sequence[int | str]] | None = None) -> onnx.ModelProto:
        return self.growth.model(self.outputs, dims)

    def resized(self, size: Callable[[int], int]) -> dict[str, np.ndarray]:
        """Other elements for the inputs, with every size replaced."""
        return {
            name: np.asarray(self.growth.data(array.dtype.name, [size(each) for each in array.shape], None, None))
            for name, array in self.feeds.items()
        }


def grow_graph(
    source: Source, *, inputs_only: bool = False, keep: Callable[[Form], bool] = lambda form: True
) -> RandomGraph:
    """A graph of 1 to 12 nodes; raises :class:`Unsuitable` if none fitted."""
    growth = Growth(source, choose(source, OPSETS), source.integer(0, 2**16), inputs_only=inputs_only)
    for _ in range(source.integer(1, MOST_NODES)):
        if len(growth.nodes) < MOST_NODES:
            growth.grow(keep)
    if not growth.nodes:
        raise Unsuitable
    _drop_unread(growth)
    return RandomGraph(growth, growth.outputs())


def _drop_unread(growth: Growth) -> None:
    """Leaves that attempts without success left behind, or that nobody came to read."""
    read = {name for node in growth.nodes for name in node.input}
    for table in (growth.feeds, growth.initializers):
        for name in set(table) - read:
            del table[name]
    growth.values = [value for value in growth.values if value.name.startswith("n") or value.name in read]


@st.composite
def random_graphs(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    inputs_only: bool = False,
    keep: Callable[[Form], bool] = lambda form: True,
) -> RandomGraph:
    """Graphs of 1 to 12 nodes, with decisions that hypothesis can shrink."""
    try:
        return grow_graph(Drawn(draw), inputs_only=inputs_only, keep=keep)
    except Unsuitable:
        from hypothesis import reject

        reject()


def seeded_graph(seed: int) -> RandomGraph | None:
    """The graph of a seed; None if there is none."""
    try:
        return grow_graph(Seeded(seed))
    except Unsuitable:
        return None
