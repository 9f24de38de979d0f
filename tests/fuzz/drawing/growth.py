"""Growing a model: nodes one after the other, each evaluated as it is added, so that shapes and elements are known.

About half of all operands are results of nodes before, mostly recent ones; so there are chains, shared subexpressions
and operands used twice.  Convolutions and pools stand between transposes now and then, where layouts meet.  Operands of
given elements (sizes, axes, counts) are constants, inputs, or computed from inputs (:mod:`.computed`).

A :class:`Growth` is one graph: the main one, or a body of a node of control flow (:mod:`.control`), which sees the
values of the graphs around it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import helper, numpy_helper

from shaderloom.runtime.plan.dtypes import BY_NAME

from . import rules  # noqa: F401  (fills the table of rules)
from .computed import computed
from .exclusions import EXCLUDED
from .forms import CONTRIBUTED, NARROW, OLDEST, Form, Formal, drawn_definitions, form_of
from .node import MOST_ELEMENTS, NodeDraw
from .oracle import HALVES, Known, compute, exactly, onnx_type
from .source import Source, Unsuitable, choose, rarely

MOST_NODES = 12
#: bodies inside bodies
DEEPEST = 2
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


def takes_narrow(form: Form) -> bool:
    """Whether an operand may have a type of 8 bits or fewer that numpy does not compute with."""
    return any(dtype in NARROW for formal in form.inputs for dtype in formal.types)


_VOCABULARIES: dict[int, dict[str, list[Form]]] = {}


@dataclass(frozen=True)
class Step:
    """A node, and how to compute its results from all values that are known before it."""

    proto: onnx.NodeProto
    compute: Callable[[Mapping[str, Known]], list[Known]]


@dataclass
class Switch:
    """An input that decides: of a branch, or how often a loop runs.  ``other`` is an element for the other decision."""

    feed: str
    other: np.ndarray


@dataclass
class Shared:
    """What all graphs of a model have in common."""

    generator: np.random.Generator
    known: dict[str, Known] = field(default_factory=dict)  #: all values, also those without readers
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    switches: list[Switch] = field(default_factory=list)
    leaves: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    bodies: Iterator[int] = field(default_factory=lambda: itertools.count(1))


#: Draws a node with bodies and adds it to a graph; raises :class:`Unsuitable`
DrawControl = Callable[["Growth"], None]


class Growth:
    """A graph under construction.

    ``inputs_only``: no initializers but those of given elements, and those are constants.  Otherwise one in ``staged``
    operands of given elements is no constant; None: all are.  ``control`` draws one in ``one_in`` nodes, outside of
    deep bodies.  ``keep`` says which operators are drawn.  ``narrow``: mostly those that take types of 8 bits and less.
    ``evenly``: each operator is as likely as the others, however it is lowered.
    """

    def __init__(
        self,
        source: Source,
        opset: int,
        seed: int,
        *,
        inputs_only: bool = False,
        staged: int | None = 16,
        control: DrawControl | None = None,
        one_in: int = 3,
        keep: Callable[[Form], bool] = lambda form: True,
        narrow: bool = False,
        evenly: bool = False,
    ) -> None:
        self.source = source
        self.opset = opset
        self.inputs_only = inputs_only
        self.staged = staged
        self.control = control
        self.one_in = one_in
        self.keep = keep
        self.narrow = narrow
        self.evenly = evenly
        self.shared = Shared(np.random.default_rng(seed))
        self.prefix = ""  #: of the names of results
        self.depth = 0
        self.steps: list[Step] = []
        self.values: list[Known] = []  #: what nodes may pick: for a body also values around it
        self.initializers: dict[str, np.ndarray] = {}

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        return [step.proto for step in self.steps]

    @property
    def generator(self) -> np.random.Generator:
        return self.shared.generator

    @property
    def known(self) -> dict[str, Known]:
        return self.shared.known

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return self.shared.feeds

    def inner(self, inputs: Sequence[Known]) -> Growth:
        """A body inside this graph with these inputs."""
        body = Growth(
            self.source,
            self.opset,
            0,
            inputs_only=self.inputs_only,
            staged=self.staged,
            control=self.control,
            one_in=self.one_in,
            keep=self.keep,
            narrow=self.narrow,
            evenly=self.evenly,
        )
        body.shared = self.shared
        body.prefix = f"{self.prefix}b{next(self.shared.bodies)}_"
        body.depth = self.depth + 1
        self.known.update((value.name, value) for value in inputs)
        body.values = [*self.values, *inputs]
        if self.values and rarely(self.source, 2):
            body.values.append(choose(self.source, self.values))  # among the recent ones, which are picked most
        return body

    # -- leaves ----------------------------------------------------------------------------------------------------

    def data(self, dtype: str, shape: Sequence[int], low: float | None, high: float | None) -> np.ndarray:
        """Elements of a realistic scale; floats are multiples of 1/8, so that sums of them are exact."""
        if dtype == "bool":
            return np.asarray(self.generator.integers(0, 2, shape)).astype(np.bool_)
        if dtype in NARROW:
            return self._narrow(dtype, shape, low, high)
        unsigned, real = dtype.startswith("uint"), dtype in ("float32", *HALVES)
        low = (-2 if real else 0 if unsigned else -9) if low is None else max(low, 0) if unsigned else low
        high = (2 if real else 20 if unsigned else 9) if high is None else high
        step = 8 if real else 1
        numbers = np.asarray(self.generator.integers(int(np.ceil(low * step)), int(high * step) + 1, shape))
        kind = helper.tensor_dtype_to_np_dtype(onnx_type(dtype))
        return (numbers / step).astype(kind) if real else numbers.astype(kind)

    def _narrow(self, dtype: str, shape: Sequence[int], low: float | None, high: float | None) -> np.ndarray:
        """Every integer of the type; of floats powers of two and their neighbours, all of which the type has."""
        kind = helper.tensor_dtype_to_np_dtype(onnx_type(dtype))
        if "int" in dtype:
            first, last = BY_NAME[dtype].integer_range
            first, last = max(first, int(low or first)), min(last, last if high is None else int(high))
            return np.asarray(self.generator.integers(first, last + 1, shape)).astype(kind)
        some = [1, 2, 4, 0.5] if dtype == "float8e8m0" else [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -3, -6]
        return np.asarray(self.generator.choice(some, shape), np.float32).astype(kind)

    def leaf(self, dtype: str, shape: tuple[int, ...], low: float | None = None, high: float | None = None) -> Known:
        if int(np.prod(shape)) > MOST_ELEMENTS:
            raise Unsuitable
        value = self.add(self.data(dtype, shape, low, high), not self.inputs_only and bool(self.source.integer(0, 1)))
        self.values.append(value)
        return value

    def given(self, array: np.ndarray, *, constant: bool = False) -> Known:
        if constant or self.inputs_only or self.staged is None or not rarely(self.source, self.staged):
            return self.add(array, True)
        return computed(self, array) if rarely(self.source, 2) else self.add(array, False)

    def add(self, array: np.ndarray, constant: bool) -> Known:
        """An initializer or input that no other node picks."""
        array = np.asarray(array)
        value = exactly(f"v{next(self.shared.leaves)}", array)
        (self.initializers if constant else self.feeds)[value.name] = array
        self.known[value.name] = value
        return value

    # -- nodes -----------------------------------------------------------------------------------------------------

    def forms_here(self) -> dict[str, list[Form]]:
        if self.opset not in _VOCABULARIES:
            _VOCABULARIES[self.opset] = vocabulary(self.opset)
        return _VOCABULARIES[self.opset]

    def grow(self) -> None:
        """Add a node of any operator, if one of a few that are drawn fits."""
        control = self.control
        if control is not None and self.depth < DEEPEST and rarely(self.source, self.one_in):
            if self.tried(lambda: control(self)):
                return
        kept = [[form for form in forms if self.keep(form)] for forms in self.forms_here().values()]
        ways = [[*itertools.chain(*kept)]] if self.evenly else [forms for forms in kept if forms]
        for _ in range(4):
            forms = choose(self.source, ways)
            if self.narrow and self.source.integer(0, 3):
                forms = [form for form in forms if takes_narrow(form)] or forms
            if self.attempt(choose(self.source, forms)):
                return

    def attempt(self, form: Form) -> bool:
        """Add a node of an operator; False, and nothing changed, if what was drawn does not fit."""
        between = form.name in SPATIAL and rarely(self.source, 3)
        return self.tried(lambda: self._between_transposes(form) if between else self.node(form))

    def tried(self, action: Callable[[], Any]) -> bool:
        """Whether an action that adds nodes succeeded; if not, nothing is changed."""
        state = (len(self.steps), len(self.values), set(self.known), len(self.shared.switches))
        try:
            action()
        except Unsuitable:
            steps, values, names, switches = state
            del self.steps[steps:], self.values[values:], self.shared.switches[switches:]
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
        names = self.names(outputs)
        proto = helper.make_node(
            form.name,
            ["" if operand is None else operand.name for operand in operands],
            names,
            f"node{self.prefix}{len(self.steps)}",
            domain=form.domain,
            **attributes,
        )
        types = _result_types(form, operands, outputs)
        opset = self.opset
        empty = [_is_empty(operand) for operand in operands]
        runtime: list[int] = []

        def results(known: Mapping[str, Known]) -> list[Known]:
            found = [known[name] if name else None for name in proto.input]
            if [_is_empty(operand) for operand in found] != empty:
                raise Unsuitable  # rules choose what may be empty: not all that a runtime gives then is defined
            return compute(form, proto, found, opset, types, runtime)

        return self.add_step(Step(proto, results))

    def apply(self, name: str, *operands: Known, **attributes: Any) -> Known:
        """Add a node of an operator of the standard with one output; :class:`Unsuitable` where there is none."""
        form = form_of(name, "", self.opset)
        if form is None:
            raise Unsuitable
        for formal, operand in zip([*form.inputs, *form.inputs[-1:] * len(operands)], operands):
            if operand.dtype not in formal.types:
                raise Unsuitable
        return self.append(form, operands, attributes)[0]

    def names(self, count: int) -> list[str]:
        """Names for the results of the next node."""
        return [f"n{self.prefix}{len(self.steps)}_{position}" for position in range(count)]

    def add_step(self, step: Step) -> list[Known]:
        results = step.compute(self.known)
        if any(result.array.size > MOST_ELEMENTS or result.rank > 8 for result in results):
            raise Unsuitable
        self.steps.append(step)
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
        """Values without readers, a few with readers, seldom an input as it is."""
        results = [value for value in self.values if value.name.startswith("n")]
        used = {name for node in self.nodes for name in reads(node)}
        found = {value.name: value for value in results if value.name not in used}
        for _ in range(self.source.integer(0, 2)):
            value = choose(self.source, results)
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
            [helper.make_tensor_value_info(value.name, onnx_type(value.dtype), None) for value in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.initializers.items()],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIBUTED, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8 if self.opset < 20 else 10)

    def replayed(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Known]:
        """All values for other inputs; raises :class:`Unsuitable` where a node does not fit them."""
        known = {name: exactly(name, array) for name, array in {**self.initializers, **feeds}.items()}
        for step in self.steps:
            known.update((value.name, value) for value in step.compute(known))
        return known


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, also those that its bodies take from outside."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inside in attribute.g.node:
                yield from reads(inside)
            yield from (port.name for port in attribute.g.output)


def _is_empty(operand: Known | None) -> bool:
    return operand is not None and not operand.array.size


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
