"""The pass manager: its order constraints, disabled passes, reports, and the list of the compiler's passes.

Covers: compiler/passes/manager, compiler/passes/pipeline.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_unit, model_unit
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.ir.graph import Graph
from shaderloom.compiler.options import CompileOptions
from shaderloom.compiler.passes.lowering import CompilationUnit, Lowering
from shaderloom.compiler.passes.manager import Pass, PassManager
from shaderloom.compiler.passes.pipeline import LAST_REWRITE, LOWERED, PIPELINE
from shaderloom.runtime.plan.errors import InputError, InternalError
from shaderloom.runtime.plan.plan import Plan

from ...support.kernels import make_model


def unit() -> CompilationUnit:
    """A product, a bias, an activation, a residual and a sum."""
    constants = {
        "w": np.ones((8, 8), np.float32),
        "b": np.arange(8, dtype=np.float32),
        "axes": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Relu", ["q"], ["r"]),
        helper.make_node("Add", ["r", "x"], ["s"]),
        helper.make_node("ReduceSum", ["s", "axes"], ["y"]),
    ]
    model = load_model(make_model(nodes, {"x": np.ones((4, 8), np.float32)}, ["y"], constants=constants))
    return model_unit(model, bind_shapes(model, {"x": (4, 8)}))


def compiled(*disabled: str) -> Plan:
    return compile_unit(unit(), Compilation(options=CompileOptions(disabled, verify=True))).plan


def nothing(lowering: Lowering, compilation: Compilation) -> int:
    return 0


# -- the order ---------------------------------------------------------------------------------------------------------


def test_every_pass_but_the_first_has_a_place():
    for each in PIPELINE.passes[1:]:
        assert each.requires, each.name


def test_the_order_is_checked():
    """Moving a pass before one that it names is refused, and so is each pass without what it requires."""
    for each in PIPELINE.passes:
        for name in (*each.requires, *each.after):
            moved = [other for other in PIPELINE.passes if other is not each]
            moved.insert([other.name for other in moved].index(name), each)
            with pytest.raises(InternalError, match="must come after"):
                PassManager(moved)
            with pytest.raises(InternalError, match="which is no pass"):
                PassManager([other for other in PIPELINE.passes if other.name != name])


@pytest.mark.parametrize(
    ("passes", "reason"),
    [
        ((Pass("a", nothing), Pass("a", nothing)), "two passes have one name"),
        ((Pass("a", nothing, after=("a",)),), "the pass 'a' must come after 'a'"),
        ((Pass("a", nothing), Pass("b", nothing, requires=("a",))), "'b' requires 'a', which may be disabled"),
    ],
)
def test_lists_that_are_refused(passes: tuple[Pass, ...], reason: str):
    with pytest.raises(InternalError, match=reason):
        PassManager(passes)


def test_what_is_required_runs_or_has_a_fallback():
    PassManager((Pass("a", nothing, required=True), Pass("b", nothing, requires=("a",))))
    PassManager((Pass("a", nothing, fallback=nothing), Pass("b", nothing, requires=("a",))))


# -- runs --------------------------------------------------------------------------------------------------------------


def test_every_pass_reports_once_in_order():
    reports = []
    compile_unit(unit(), Compilation(observer=lambda report, graph: reports.append((report, len(graph.nodes)))))
    assert tuple(report.name for report, _ in reports) == PIPELINE.names
    assert all(report.nodes == nodes for report, nodes in reports)
    assert all(report.milliseconds > 0 for report, _ in reports)
    changes = {report.name: report.changes for report, _ in reports}
    assert changes["specialise"] == 5
    assert changes["expand"] > 0 and changes["fuse"] > 0 and changes["kernels"] > 0 and changes["plan"] > 0


def test_stopping_at_a_pass():
    seen = []
    lowering = compile_unit(unit(), Compilation(observer=lambda report, _: seen.append(report.name)), until=LOWERED)
    assert seen[-1] == LOWERED
    assert lowering.fusion.groups and not hasattr(lowering, "plan")


def test_going_on_where_another_run_stopped():
    lowering = compile_unit(unit(), Compilation(), until=LAST_REWRITE)
    PIPELINE.run(lowering, Compilation(), start="winograd")
    assert lowering.plan.key == compiled().key


@pytest.mark.parametrize("name", PIPELINE.optional)
def test_every_optional_pass_can_be_disabled(name: str):
    seen = []
    options = CompileOptions((name,), verify=True)
    compile_unit(unit(), Compilation(options=options, observer=lambda report, _: seen.append(report.name)))
    fallback = PIPELINE.passes[PIPELINE.position(name)].fallback
    assert (name in seen) == (fallback is not None)


def test_all_optional_passes_can_be_disabled_together():
    assert len(compiled(*PIPELINE.optional).calls) > len(compiled().calls)


def test_disabled_passes_leave_their_mark():
    plain = compiled()
    assert len(compiled("fuse").calls) > len(plain.calls)
    apart = compiled("fuse", "in-place")
    assert compiled("fuse").notes.memory.in_place > apart.notes.memory.in_place == 0


@pytest.mark.parametrize("name", [name for name in PIPELINE.names if name not in PIPELINE.optional])
def test_what_is_required_cannot_be_disabled(name: str):
    with pytest.raises(InputError, match=f"the pass '{name}' cannot be disabled") as error:
        compiled(name)
    assert error.value.hint is not None and "siblings" in error.value.hint and "expand" not in error.value.hint


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="there is no pass 'loyout'"):
        compiled("loyout")
    with pytest.raises(InputError, match="there is no pass 'nowhere'"):
        compile_unit(unit(), Compilation(), until="nowhere")


@pytest.mark.parametrize("name", ["dead-code", "operand-limit", "plan"])
def test_verify_names_a_pass_that_breaks_the_graph(name: str):
    """The option checks the graph after every pass: one that leaves a value without its node is caught at once."""

    def breaks(lowering: Lowering, compilation: Compilation) -> int:
        lowering.graph.nodes.pop()
        return 1

    position = PIPELINE.position(name) + 1
    broken = PassManager((*PIPELINE.passes[:position], Pass("breaks", breaks), *PIPELINE.passes[position:]))
    with pytest.raises(InternalError):
        broken.run(Lowering(unit()), Compilation(options=CompileOptions(verify=True)), until="breaks")
    broken.run(Lowering(unit()), Compilation(), until="breaks")


def test_options_with_further_passes_disabled():
    options = CompileOptions(("views", "fuse"))
    assert options.without(("fuse", "layout")).disabled_passes == ("views", "fuse", "layout")
    assert options.without(()) == options


def test_the_context_of_another_compilation_asks_again():
    compilation = Compilation()
    compilation.choices.choose("a", [1, 2])
    other = compilation.without(("fuse",))
    assert other.options.disabled_passes == ("fuse",)
    assert not other.choices.decisions and compilation.choices.decisions


def test_names_are_words_of_the_command_line():
    assert len(set(PIPELINE.names)) == len(PIPELINE.names)
    assert all(name.replace("-", "").isalpha() and name.islower() for name in PIPELINE.names)


def test_a_unit_gives_a_new_graph_each_time():
    one = unit()
    graphs = [one.specialise(Compilation().limits) for _ in range(2)]
    assert all(isinstance(graph, Graph) for graph in graphs) and graphs[0] is not graphs[1]
    for left, right in itertools.pairwise(compile_unit(one, Compilation()).plan for _ in range(2)):
        assert left.key == right.key
