"""The passes between expansion and layout: what they make of small graphs, and that results stay the same.

Covers: compiler/passes.
"""

import numpy as np
import pytest

from shaderloom.compiler.fusion import fuse
from shaderloom.compiler.ir.graph import Graph, verify
from shaderloom.compiler.reference.interpreter import run_graph
from shaderloom.runtime.plan.errors import InputError

from ...support.golden import check_golden
from ...support.graphs import Example, ints, weights
from ...support.models import trained_model
from ...support.pass_examples import EXAMPLES, FUSED, LAYER_NORM_ENDS, LAYER_NORMS, layer_norm
from ...support.passes import OPTIONAL_REWRITES, REWRITES, run_rewrites


def _kernels(graph: Graph) -> list[str]:
    return [group.family for group in fuse(graph).groups if not group.constant]


def _assert_same_results(expected: list[np.ndarray], found: list[np.ndarray], tolerance: float) -> None:
    assert len(expected) == len(found)
    for one, other in zip(expected, found):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        scale = max(float(np.abs(one.astype(np.float64)).max(initial=0.0)), 1e-30)
        assert float(np.abs(one.astype(np.float64) - other).max(initial=0.0)) / scale <= tolerance


@pytest.mark.parametrize("name", EXAMPLES)
def test_golden(name: str):
    graph = EXAMPLES[name].graph()
    before = str(graph)
    run_rewrites(graph, verify=True)
    check_golden(f"passes/{name}.txt", f"{before}\n\n{graph}")


@pytest.mark.parametrize("name", EXAMPLES)
def test_results_stay_the_same_whichever_pass_is_off(name: str):
    example = EXAMPLES[name]
    feeds = example.inputs()
    expected = run_graph(example.graph(), feeds)
    for disabled in [(), *((each,) for each in OPTIONAL_REWRITES)]:
        graph = example.graph()
        run_rewrites(graph, disabled=disabled, verify=True)
        _assert_same_results(expected, run_graph(graph, feeds), 1e-6)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_second_run_changes_nothing(name: str):
    graph = EXAMPLES[name].graph()
    run_rewrites(graph)
    text = str(graph)
    run_rewrites(graph)
    assert str(graph) == text


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_origin_is_lost(name: str):
    """Every ONNX node whose work is left is named by a node of the graph that the outputs depend on."""
    graph = EXAMPLES[name].graph()
    before = {origin for node in graph.nodes for origin in node.origins}
    run_rewrites(graph)
    after = {origin for node in graph.nodes for origin in node.origins}
    assert after <= before
    # Views and neutral operators on inputs leave nothing that could name them.
    lost = {origin.op for origin in before - after}
    assert lost <= {"Reshape", "Transpose", "Split", "Slice", "Concat", "Expand", "Cast", "Identity", "Unsqueeze",
                    "Flatten", "Squeeze", "Mul", "Div", "Sub", "Pow", "Neg"}  # fmt: skip


ONE_KERNEL = (
    "conv_batch_norm_relu",
    "conv_batch_norm_one_dimension",
    "conv_scale_written_out",
    "transposed_conv_scale_groups",
    "scaled_operand",
    "matmul_scale_and_rows",
    "matmul_rows_dynamic",
    "pad_into_conv",
    "pad_into_average_pool",
)


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name: str):
    graph = EXAMPLES[name].graph()
    run_rewrites(graph)
    assert len(_kernels(graph)) == 1


@pytest.mark.parametrize("name", FUSED)
def test_what_exporters_spell_out_is_one_kernel(name: str):
    example = FUSED[name]
    graph = example.graph()
    feeds = example.inputs()
    expected = run_graph(graph, feeds)
    run_rewrites(graph, verify=True)
    _assert_same_results(expected, run_graph(graph, feeds), 1e-5)
    assert len(_kernels(graph)) == 1, str(graph)


def test_batch_normalisation_leaves_convolution_and_bias():
    for name in ("conv_batch_norm_relu", "conv_batch_norm_one_dimension", "conv_scale_written_out"):
        graph = EXAMPLES[name].graph()
        run_rewrites(graph)
        left = [node.op for node in graph.nodes if node.op not in ("View", "Relu")]
        assert left == ["Convolution", "Add"], name


@pytest.mark.parametrize("middle", LAYER_NORMS)
@pytest.mark.parametrize("end", LAYER_NORM_ENDS)
def test_layer_normalisation_spelled_out_is_one_kernel(middle: str, end: str):
    example = layer_norm(middle, end)
    graph = example.graph()
    feeds = example.inputs()
    expected = run_graph(graph, feeds)
    run_rewrites(graph, verify=True)
    assert _kernels(graph) == ["reduce"]
    _assert_same_results(expected, run_graph(graph, feeds), 1e-5)


def test_dynamic_rows_run_at_every_size():
    example = EXAMPLES["matmul_rows_dynamic"]
    graph = example.graph()
    run_rewrites(graph, verify=True)
    generator = np.random.default_rng(0)
    for shape in ((1, 1, 7), (2, 3, 7), (8, 5, 7)):
        x = generator.standard_normal(shape).astype(np.float32)
        expected = x @ example.initializers["w"] + example.initializers["b"]
        _assert_same_results([expected], run_graph(graph, {"x": x}), 1e-6)


def test_constants_of_a_dynamic_shape_are_not_constant():
    """A constant that is broadcast to a dynamic size must be computed at run time, at every size."""
    example = Example(
        """g (float[N, 4] x) => (float[N, 4] y) {
            s = Shape (x)
            e = Expand (c, s)
            d = Add (e, x)
            f = Neg (e)
            y = Sub (d, f)
        }""",
        {"x": (3, 4)},
        {"c": weights(4)},
        dynamic={"N": (1, 9)},
    )
    graph = example.graph()
    run_rewrites(graph, verify=True)
    assert not any(group.constant for group in fuse(graph).groups if any(map(_is_dynamic, group.output.shape)))
    for size in (1, 3, 9):
        x = weights(size, 4, seed=9)
        _assert_same_results([x + 2 * example.initializers["c"]], run_graph(graph, {"x": x}), 1e-6)


def _is_dynamic(size) -> bool:
    return not isinstance(size, int)


def test_zero_is_added_because_of_its_sign():
    graph = EXAMPLES["neutral_elements"].graph()
    run_rewrites(graph)
    (result,) = (array for array in run_graph(graph, {"x": np.full((3, 4), -0.0, np.float32), "i": ints(1, 2, 3)
                 .astype(np.int32)})[2:])  # fmt: skip
    assert not np.signbit(result).any()


def test_an_unknown_pass_is_refused():
    with pytest.raises(InputError, match="there is no pass 'loyout'"):
        run_rewrites(Graph("g"), disabled={"loyout"})


def test_reports_name_each_pass_once():
    reports = []
    graph = EXAMPLES["conv_batch_norm_relu"].graph()
    run_rewrites(graph, observer=lambda report, _: reports.append(report))
    assert tuple(report.name for report in reports) == REWRITES
    assert reports[-1].nodes == len(graph.nodes)


@pytest.mark.parametrize(("name", "shape"), [("ppocr_cls", (1, 3, 48, 64)), ("ppocr_rec", (1, 3, 48, 64))])
def test_trained_models_compute_the_same(name: str, shape: tuple[int, ...]):
    from shaderloom.compiler.binding.shape_binding import bind_shapes, specialise
    from shaderloom.compiler.frontend import load_model
    from shaderloom.compiler.passes.expand import expand

    model = load_model(trained_model(name))
    feeds = {model.inputs[0].name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    graph = specialise(model, bind_shapes(model, {key: array.shape for key, array in feeds.items()}).shapes)
    expand(graph)
    before = len(_kernels(graph))
    expected = run_graph(graph, feeds)
    run_rewrites(graph, verify=True)
    verify(graph)
    assert len(_kernels(graph)) <= before
    _assert_same_results(expected, run_graph(graph, feeds), 1e-4)
