"""Random graphs of the registry's operators, evaluated in every way, against a trusted runtime: 2,000 a run.

What runs where, and what it costs (processor time of one core, measured with a cold cache):

* most examples on the host: the model is imported, specialised, expanded and rewritten as for a plan, and the numpy
  interpreter runs what fusion would get (0.04 s each);
* every eighth on the first adapter: one plan with poisoned memory, or a session where shapes depend on elements
  (0.2 s each, nearly all of it the driver's compiler, as no two graphs share kernels);
* programs, with control flow and computed sizes, in sessions: a run, the same again, and one that decides otherwise;
* some on the second adapter, some with declared dynamic dimensions, one plan for two sizes, and some with inputs that
  are found in data.

Each example draws a *variant*: an optional pass off, or all of them.  ``./dev soak`` takes other examples every time,
and many more.  How examples are made is in ``tests/fuzz/drawing``.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from shaderloom import InferenceSession
from shaderloom.runtime.plan.errors import ShapeError, UnsupportedError

from ..conftest import open_adapter
from ..support.effort import SOAK
from ..support.running import compile_for, run_plan
from ..support.sessions import plans_of
from .drawing.examine import LOWERING, REWRITING, VARIANTS, compare, interpret, run_on_device, run_program
from .drawing.exclusions import EXCLUDED
from .drawing.forms import NARROW, OLDEST, Form, drawn_definitions, form_of
from .drawing.graphs import RandomGraph, random_graphs, seeded_graph
from .drawing.growth import Growth
from .drawing.long_halves import LongGraph, long_graphs
from .drawing.oracle import Known, dtype_of
from .drawing.source import Seeded, Unsuitable
from .drawing.uneven_rows import UnevenModel, uneven_models

#: examples in a run of all tests
HOST, FIRST, SECOND, DYNAMIC, PROGRAMS, COUNTS, LONG, UNEVEN = 1570, 240, 60, 130, 60, 30, 60, 40


def profile(examples: int) -> settings:
    return settings(
        max_examples=settings.default.max_examples if SOAK else examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=not SOAK,
        database=None,
    )


@pytest.mark.fuzz
@pytest.mark.slow
def test_graphs_on_the_host() -> None:
    used: Counter[str] = Counter()
    types: set[str] = set()

    @profile(HOST)
    @given(random_graphs(), st.sampled_from(list(REWRITING)))
    def check(graph: RandomGraph, variant: str) -> None:
        note(onnx.printer.to_text(graph.model()))
        results = interpret(graph, REWRITING[variant])
        if results is not None:  # stages are for devices
            used[variant] += 1
            types.update(dtype_of(array) for array in (*graph.feeds.values(), *results))
            compare(graph.outputs, results)

    check()
    assert set(used) == set(REWRITING)
    assert len(types & set(NARROW)) > 3, types


@pytest.mark.fuzz
@pytest.mark.slow
@pytest.mark.device
@pytest.mark.parametrize(
    ("adapter", "kind", "examples", "variants"),
    [
        pytest.param("llvmpipe", "", FIRST // 2, list(REWRITING), id="llvmpipe"),
        *(
            pytest.param("llvmpipe", "", FIRST // 2 // len(LOWERING), [variant], id=f"llvmpipe, {variant}")
            for variant in LOWERING
        ),
        pytest.param("llvmpipe", "discrete", SECOND, list(REWRITING), id="llvmpipe, kernels of GPUs"),
        pytest.param("SwiftShader", "", SECOND, list(VARIANTS), id="SwiftShader"),
    ],
)
def test_graphs_on_devices(adapter: str, kind: str, examples: int, variants: list[str]) -> None:
    device = open_adapter(adapter)

    @profile(examples)
    @given(random_graphs(), st.sampled_from(variants))
    def check(graph: RandomGraph, variant: str) -> None:
        note(onnx.printer.to_text(graph.model()))
        compare(graph.outputs, run_on_device(graph, device, VARIANTS[variant], kind))

    check()


# -- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.fuzz
@pytest.mark.slow
@pytest.mark.device
@pytest.mark.parametrize(("adapter", "examples"), [("llvmpipe", PROGRAMS), ("SwiftShader", PROGRAMS // 5)])
def test_programs_on_devices(adapter: str, examples: int) -> None:
    """Control flow and computed operands: a run, the same run again, and one with other decisions."""
    device = open_adapter(adapter)
    used: Counter[str] = Counter()

    @profile(examples)
    @given(random_graphs(programs=True))
    def check(graph: RandomGraph) -> None:
        model = graph.model()
        note(onnx.printer.to_text(model))
        feeds, expected = [graph.feeds, graph.feeds], [graph.outputs, graph.outputs]
        others = graph.switched()
        if others is not None:
            try:
                known = graph.growth.replayed(others)
                feeds.append(others)
                expected.append([known[value.name] for value in graph.outputs])
            except Unsuitable:  # the other branch is a mistake, or the shapes that follow do not fit
                pass
        used.update(node.op_type for node in model.graph.node)
        used["other decisions"] += len(feeds) > 2
        for results, wanted in zip(run_program(model, feeds, device), expected, strict=True):
            compare(wanted, results)

    check()
    assert examples < PROGRAMS or min(used[each] for each in ("If", "Loop", "Scan", "other decisions")) > 2


@pytest.mark.slow
def test_control_flow_of_the_reference_is_that_of_onnxruntime() -> None:
    """What :mod:`.control` computes for nodes with bodies, beside a runtime that others wrote."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    compared: Counter[str] = Counter()

    def keep(form: Form) -> bool:
        return not form.domain and form.definition.element is not None and form.name not in PARTIAL

    for seed in range(100):
        graph = seeded_graph(seed, programs=True, keep=keep)
        ops = set() if graph is None else {node.op_type for node in graph.growth.nodes}
        if graph is None or not ops & {"If", "Loop", "Scan"}:
            continue
        if not all(value.array.size for value in graph.growth.known.values()):
            continue  # onnxruntime divides by sizes of 0, which ends the process
        try:
            session = onnxruntime.InferenceSession(graph.model().SerializeToString(), options)
            results = session.run(None, graph.feeds)
        except Exception:  # it looks into branches that are not taken, wants ranks of branches equal, lacks types
            continue
        compare(graph.outputs, results)
        compared.update(ops)
    assert min(compared[op] for op in ("If", "Loop", "Scan")) >= 3


# -- declared dimensions ---------------------------------------------------------------------------------------------

#: no operand or attribute of these is a size
SIZELESS = frozenset(
    {"Transpose", "Unsqueeze", "Squeeze", "Flatten", "Slice", "Concat", "Pad", "Trilu", "Softmax", "LogSoftmax"}
    | {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2", "ArgMax", "ArgMin", "MatMul", "Identity"}
)
#: other elements of the inputs may be outside their domain
PARTIAL = frozenset({"Div", "Mod", "Pow", "BitShift"})


def holds_for_all_sizes(form: Form) -> bool:
    if form.domain or form.name in PARTIAL:
        return False
    return form.name in SIZELESS or form.definition.element is not None


def named_dims(graph: RandomGraph) -> dict[str, list[int | str]]:
    """Shapes of the inputs with a name for every size above 1, the same name for equal sizes."""
    return {name: [size if size < 2 else f"size{size}" for size in array.shape] for name, array in graph.feeds.items()}


@pytest.mark.fuzz
@pytest.mark.slow
def test_graphs_of_declared_dimensions(device) -> None:
    """One plan for several sizes of every dimension, where the graph holds for them; 1 may be among them."""
    runs: Counter[int] = Counter()
    single: Counter[bool] = Counter()

    @profile(DYNAMIC)
    @given(random_graphs(inputs_only=True, keep=holds_for_all_sizes), st.sampled_from([1, 5]), st.sampled_from([1, 2]))
    def check(graph: RandomGraph, step: int, least: int) -> None:
        dims = named_dims(graph)
        names = {dim for shape in dims.values() for dim in shape if isinstance(dim, str)}
        sizes = {name: int(name.removeprefix("size")) for name in names}
        dynamic = {name: (least + (size - least) % step, size + 9, step) for name, size in sizes.items()}
        model = graph.model(dims)
        note(onnx.printer.to_text(model))
        try:
            plan = compile_for(model, graph.feeds, device.profile, dynamic=dynamic)
        except (ShapeError, UnsupportedError) as error:
            if names and "size" not in str(error):
                raise  # a refusal names the dimension that it cannot leave open
            return
        feeds, expected = [graph.feeds], [graph.outputs]
        others = [lambda size: size if size < 2 else size + 5]
        if all(low == 1 for low, *_ in dynamic.values()):
            others.append(lambda size: min(size, 1))  # what is one element may be broadcast, also by chance
        for other in others if names else ():
            resized = graph.resized(other)
            try:
                known = graph.growth.replayed(resized)
            except Unsuitable:  # sizes that were equal by chance
                continue
            single[other is others[-1] and len(others) > 1] += 1
            feeds.append(resized)
            expected.append([known[value.name] for value in graph.outputs])
        runs[len(feeds)] += 1
        for results, wanted in zip(run_plan(device, plan, model, feeds), expected, strict=True):
            compare(wanted, results)

    check()
    assert runs.total() > DYNAMIC // 3 and single[False] > DYNAMIC // 20 and single[True] > DYNAMIC // 20


@pytest.mark.fuzz
@pytest.mark.slow
def test_long_reductions_of_halves(device) -> None:
    """Sums beyond float16 whose means are in it: for the drawn sizes, and for every size with one plan."""
    compared: Counter[str] = Counter()

    @profile(LONG)
    @given(long_graphs(), st.booleans())
    def check(graph: LongGraph, declared: bool) -> None:
        note(onnx.printer.to_text(graph.proto))
        feeds = [graph.feeds]
        if declared:
            feeds += [graph.resized(lambda size: max(size // 3, 1)), graph.resized(lambda size: 1)]
        dynamic = graph.dynamic if declared else {}
        plan = compile_for(graph.proto, graph.feeds, device.profile, dynamic=dynamic)
        for each, (found,) in zip(feeds, run_plan(device, plan, graph.proto, feeds), strict=True):
            try:
                graph.check(found, each)
            except Unsuitable:
                continue
            compared["declared" if plan.symbols else "as drawn"] += 1
            compared["long"] += each["x"].shape[-1] * (each["x"].shape[2] if each["x"].ndim == 4 else 1) > 65_536

    check()
    assert min(compared.values()) > LONG // 6 and len(compared) == 3, compared


@pytest.mark.fuzz
@pytest.mark.slow
def test_batches_of_rows_of_different_lengths(device) -> None:
    """One plan for every batch, every length and every number of keys; and those that a session has for some."""

    @profile(UNEVEN)
    @given(uneven_models())
    def check(model: UnevenModel) -> None:
        note(onnx.printer.to_text(model.proto))
        plan = compile_for(model.proto, model.feeds[0], device.profile, dynamic=model.dynamic)
        model.check([run_plan(device, plan, model.proto, each) for each in model.feeds])
        with InferenceSession(model.proto, device=device, cache=False, dynamic=model.dynamic) as session:
            model.check([session.run(None, each) for each in model.feeds])

    check()


#: rows among which those of an input are found
ROWS = 100


def found_inside(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[str]:
    """Let the rows of inputs be found by masks among others, by Compress; gives the names of these inputs."""
    found = []
    for port in list(model.graph.input):
        name = port.name
        if not feeds[name].ndim or not 2 <= len(feeds[name]) <= ROWS - 10:
            continue
        found.append(name)
        model.graph.node.insert(0, onnx.helper.make_node("Compress", [f"{name}_all", f"{name}_mask"], [name], axis=0))
        model.graph.input.append(onnx.helper.make_tensor_value_info(f"{name}_mask", onnx.TensorProto.BOOL, [ROWS]))
        port.name = f"{name}_all"
        port.type.tensor_type.shape.dim[0].dim_value = ROWS
    return found


def among_others(feeds: dict[str, np.ndarray], names: list[str], seed: int) -> dict[str, np.ndarray]:
    """Feeds for what :func:`found_inside` made of a model."""
    generator = np.random.default_rng(seed)
    result = dict(feeds)
    for name in names:
        array = result.pop(name)
        where = np.sort(generator.choice(ROWS, len(array), replace=False))
        rows = np.zeros((ROWS, *array.shape[1:]), array.dtype)
        rows[where] = array
        result.update({f"{name}_all": rows, f"{name}_mask": np.isin(np.arange(ROWS), where)})
    return result


@pytest.mark.fuzz
@pytest.mark.slow
def test_graphs_behind_counts(device) -> None:
    """Rows that are found in data, in four numbers: a plan for each, or from the third on one for all."""
    opened: Counter[bool] = Counter()

    @profile(COUNTS)
    @given(random_graphs(inputs_only=True, keep=holds_for_all_sizes))
    def check(graph: RandomGraph) -> None:
        model = graph.model(named_dims(graph))
        names = found_inside(model, graph.feeds)
        note(onnx.printer.to_text(model))
        if not names or model.opset_import[0].version < 9:
            return
        feeds, expected = [], []
        for more in (0, 3, 7, 5):
            larger = graph.resized(lambda size, more=more: size if size < 2 else size + more)
            try:
                known = graph.growth.replayed(larger)
            except Unsuitable:  # sizes that were equal by chance
                return
            feeds.append(among_others(larger, names, more))
            expected.append([known[value.name] for value in graph.outputs])
        with InferenceSession(model, device=device, providers=["wgpu"], cache=False) as session:
            for each, wanted in zip(feeds, expected):
                compare(wanted, [np.asarray(result) for result in session.run(None, each)])
            opened[any(plan.symbols for plan in plans_of(session))] += 1

    check()
    assert opened[True] > COUNTS // 5, opened


# -- the vocabulary --------------------------------------------------------------------------------------------------


def drawable(name: str, domain: str) -> bool:
    """Whether a node of the operator is found at any of some opsets."""
    for opset in (onnx.defs.onnx_opset_version(), 21, 17, 13, 9, OLDEST):
        form = form_of(name, domain, opset)
        if form is not None and any(Growth(Seeded(seed), opset, seed).attempt(form) for seed in range(12)):
            return True
    return False


def test_every_operator_is_drawn_or_excluded_with_a_reason() -> None:
    """A new operator that the generic drawing cannot do gets a rule, see ``tests/fuzz/drawing/node.py``."""
    found = {(each.domain, each.name): drawable(each.name, each.domain) for each in drawn_definitions()}
    missing = sorted(key for key, is_drawn in found.items() if not is_drawn and key not in EXCLUDED)
    assert not missing
    assert set(EXCLUDED) <= set(found) and all(EXCLUDED.values())


def test_what_is_ill_conditioned_is_not_drawn() -> None:
    """A comparison of equal numbers of which one was rounded is no fair test, and one of exact numbers is."""
    growth = Growth(Seeded(0), 17, 0)
    value = growth.leaf("float32", (7,), 1.0, 2.0)
    exp = growth.append(_form("Exp"), [value], {})[0]
    back = growth.append(_form("Log"), [exp], {})[0]
    assert value.exact and not exp.exact and not back.exact
    with pytest.raises(Unsuitable):
        growth.append(_form("Floor"), [back], {})
    with pytest.raises(Unsuitable):
        growth.append(_form("Less"), [value, back], {})
    assert growth.append(_form("Floor"), [value], {})[0].exact
    assert growth.append(_form("Less"), [value, value], {})[0].exact


def test_what_leaves_its_type_is_not_drawn() -> None:
    growth = Growth(Seeded(0), 17, 0)
    value: Known = growth.leaf("float32", (7,), 9.0, 9.0)
    exp = growth.append(_form("Exp"), [value], {})[0]
    with pytest.raises(Unsuitable):
        growth.append(_form("Exp"), [exp], {})
    with pytest.raises(Unsuitable):
        growth.append(_form("Log"), [growth.append(_form("Neg"), [value], {})[0]], {})


def _form(name: str) -> Form:
    found = form_of(name, "", 17)
    assert found is not None
    return found
