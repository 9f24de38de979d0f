"""The passes between expansion and layout: what they make of small graphs, and that results stay the same."""

import numpy as np
import pytest

from shaderloom.compiler.fusion import fuse
from shaderloom.compiler.interpret import run_graph
from shaderloom.compiler.ir import Graph, verify
from shaderloom.compiler.passes.pipeline import PASS_NAMES, run_passes
from shaderloom.runtime.errors import InputError

from .support.golden import check_golden
from .support.graphs import Example, ints, weights
from .support.models import trained_model

BATCH_NORM = {
    "scale": weights(5, low=0.5),
    "bias": weights(5, seed=2),
    "mean": weights(5, seed=3),
    "variance": weights(5, seed=4, low=0.5),
}

EXAMPLES = {
    "conv_batch_norm_relu": Example(
        """g (float[1, 3, 7, 9] x) => (float[1, 5, 7, 9] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
            n = BatchNormalization (c, scale, bias, mean, variance)
            y = Relu (n)
        }""",
        {"x": (1, 3, 7, 9)},
        {"w": weights(5, 3, 3, 3), "b": weights(5), **BATCH_NORM},
    ),
    "conv_batch_norm_one_dimension": Example(
        """g (float[2, 3, 11] x) => (float[2, 5, K] y) {
            c = Conv <strides = [2]> (x, w, b)
            y = BatchNormalization (c, scale, bias, mean, variance)
        }""",
        {"x": (2, 3, 11)},
        {"w": weights(5, 3, 3), "b": weights(5), **BATCH_NORM},
    ),
    "conv_scale_written_out": Example(
        """g (float[1, 3, 7, 9] x) => (float[1, 4, 7, 9] y) {
            c = Conv (x, w)
            s = Sub (c, mean)
            d = Div (s, deviation)
            m = Mul (gamma, d)
            y = Add (m, beta)
        }""",
        {"x": (1, 3, 7, 9)},
        {
            "w": weights(4, 3, 1, 1),
            "mean": weights(1, 4, 1, 1),
            "deviation": weights(4, 1, 1, low=0.5),
            "gamma": weights(1, 4, 1, 1, seed=5),
            "beta": np.float32(0.25),
        },
    ),
    "transposed_conv_scale_groups": Example(
        """g (float[1, 4, 5, 6] x) => (float[1, 6, H, W] y) {
            c = ConvTranspose <strides = [2, 2], group = 2> (x, w)
            m = Mul (c, s)
            y = Add (m, b)
        }""",
        {"x": (1, 4, 5, 6)},
        {"w": weights(4, 3, 2, 2), "s": weights(6, 1, 1, low=0.5), "b": weights(6, 1, 1)},
    ),
    "scaled_operand": Example(
        """g (float[1, 3, 7, 9] x) => (float[1, 4, 7, 9] y) {
            s = Mul (x, f)
            d = Div (s, t)
            y = Conv <pads = [1, 1, 1, 1]> (d, w)
        }""",
        {"x": (1, 3, 7, 9)},
        {"w": weights(4, 3, 3, 3), "f": weights(3, 1, 1, low=0.5), "t": np.float32(3.0)},
    ),
    "matmul_scale_and_rows": Example(
        """g (float[2, 5, 7] x) => (float[2, 5, 4] y) {
            p = MatMul (x, w)
            s = Mul (p, f)
            b = Add (s, bias)
            y = Relu (b)
        }""",
        {"x": (2, 5, 7)},
        {"w": weights(7, 4), "f": weights(4, low=0.5), "bias": weights(4)},
    ),
    "matmul_of_matrices_in_batches": Example(
        "g (float[2, 3, 5, 7] x, float[1, 1, 7, 4] w) => (float[2, 3, 5, 4] y) { y = MatMul (x, w) }",
        {"x": (2, 3, 5, 7), "w": (1, 1, 7, 4)},
    ),
    "matmul_rows_dynamic": Example(
        "g (float[N, S, 7] x) => (float[N, S, 4] y) { p = MatMul (x, w) y = Add (p, b) }",
        {"x": (2, 3, 7)},
        {"w": weights(7, 4), "b": weights(4)},
        dynamic={"N": (1, 8), "S": (1, 64)},
    ),
    "pad_into_conv": Example(
        """g (float[1, 3, 7, 9] x) => (float[1, 4, H, W] y) {
            p = Pad (x, pads)
            y = Conv <pads = [0, 1, 0, 0]> (p, w)
        }""",
        {"x": (1, 3, 7, 9)},
        {"w": weights(4, 3, 3, 3), "pads": ints(0, 0, 1, 2, 0, 0, 1, 0)},
    ),
    "pad_into_average_pool": Example(
        """g (float[1, 3, 7, 9] x) => (float[1, 3, H, W] y) {
            p = Pad (x, pads)
            y = AveragePool <kernel_shape = [3, 3]> (p)
        }""",
        {"x": (1, 3, 7, 9)},
        {"pads": ints(0, 0, 1, 1, 0, 0, 1, 1)},
    ),
    "pad_into_max_pool": Example(
        """g (float[1, 3, 8, 8] x) => (float[1, 3, H, W] y) {
            r = Relu (x)
            p = Pad (r, pads)
            y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (p)
        }""",
        {"x": (1, 3, 8, 8)},
        {"pads": ints(0, 0, 1, 1, 0, 0, 0, 0)},
    ),
    "pad_that_could_win": Example(
        """g (float[1, 3, 8, 8] x) => (float[1, 3, H, W] y) {
            p = Pad (x, pads)
            y = MaxPool <kernel_shape = [3, 3]> (p)
        }""",
        {"x": (1, 3, 8, 8)},
        {"pads": ints(0, 0, 1, 1, 0, 0, 1, 1)},
    ),
    "changes_of_shape": Example(
        """g (float[2, 3, 4] x) => (float[24] y, float[4, 6] z) {
            a = Unsqueeze (x, axis)
            b = Flatten <axis = 2> (a)
            c = Squeeze (b)
            y = Reshape (c, all)
            t = Transpose <perm = [2, 0, 1]> (x)
            u = Transpose <perm = [1, 2, 0]> (t)
            v = Transpose <perm = [2, 0, 1]> (u)
            z = Reshape (v, two)
        }""",
        {"x": (2, 3, 4)},
        {"axis": ints(0), "all": ints(-1), "two": ints(4, 6)},
    ),
    "slices": Example(
        """g (float[6, 8] x) => (float[4, 8] y, float[2, 3] z, float[6, 8] s) {
            a = Slice (x, c1, c5, axis0)
            b = Slice (a, c0, c4, axis0)
            y = Identity (b)
            left, right = Split <axis = 1> (x, halves)
            s = Concat <axis = 1> (left, right)
            j = Concat <axis = 0> (x, x)
            k = Slice (j, from, to)
            z = Neg (k)
        }""",
        {"x": (6, 8)},
        {
            "c0": ints(0),
            "c1": ints(1),
            "c4": ints(4),
            "c5": ints(5),
            "axis0": ints(0),
            "halves": ints(3, 5),
            "from": ints(7, 2),
            "to": ints(9, 5),
        },
    ),
    "expanded_operands": Example(
        """g (float[2, 1, 4] x, float[2, 3, 4] y, bool[4] m) => (float[2, 3, 4] z, float[2, 3, 4] o) {
            e = Expand (x, shape)
            n = Expand (m, shape)
            a = Add (e, y)
            z = Where (n, a, e)
            o = Neg (e)
        }""",
        {"x": (2, 1, 4), "y": (2, 3, 4), "m": (4,)},
        {"shape": ints(2, 3, 4)},
    ),
    "equal_nodes": Example(
        """g (float[3, 4] x, float[3, 4] z) => (float[3, 4] y) {
            a = Add (x, z)
            b = Add (z, x)
            c = Mul (a, two)
            d = Mul (b, deux)
            e = Sub (c, d)
            y = Abs (e)
        }""",
        {"x": (3, 4), "z": (3, 4)},
        {"two": np.float32(2.0), "deux": np.float32(2.0)},
    ),
    "neutral_elements": Example(
        """g (float[3, 4] x, int32[3] i) => (float[3, 4] y, int32[3] j, float[3, 4] k) {
            a = Mul (x, one)
            b = Div (a, one)
            c = Sub (b, zero)
            d = Pow (c, one)
            e = Neg (d)
            f = Neg (e)
            r = Relu (f)
            s = Relu (r)
            y = Div (s, eight)
            h = Cast <to = 7> (i)
            j = Cast <to = 6> (h)
            k = Add (x, zero)
        }""",
        {"x": (3, 4), "i": (3,)},
        {"one": np.float32(1.0), "zero": np.float32(0.0), "eight": np.float32(8.0)},
    ),
    "constants_of_a_chain": Example(
        """g (float[3, 4] x) => (float[3, 4] y, float[3, 4] z) {
            a = Add (x, p)
            b = Sub (a, q)
            c = Mul (b, q)
            y = Mul (c, p)
            d = Mul (x, column)
            z = Mul (d, row)
        }""",
        {"x": (3, 4)},
        {"p": weights(4, low=1.0), "q": np.float32(3.0), "column": weights(3, 1), "row": weights(4, seed=7)},
    ),
}

#: what exporters write for one operation; each is one kernel
FUSED = {
    "scale_mask_softmax": Example(
        """g (float[2, 4, 8, 8] x, float[2, 1, 1, 8] mask) => (float[2, 4, 8, 8] y) {
            s = Div (x, root)
            m = Add (s, mask)
            y = Softmax <axis = -1> (m)
        }""",
        {"x": (2, 4, 8, 8), "mask": (2, 1, 1, 8)},
        {"root": np.float32(5.65)},
    ),
    "where_mask_softmax": Example(
        """g (float[2, 4, 8, 8] x, bool[2, 1, 1, 8] mask) => (float[2, 4, 8, 8] y) {
            s = Mul (x, scale)
            e = Expand (mask, shape)
            m = Where (e, s, low)
            y = Softmax <axis = -1> (m)
        }""",
        {"x": (2, 4, 8, 8), "mask": (2, 1, 1, 8)},
        {"scale": np.float32(0.125), "low": np.float32(-1e4), "shape": ints(2, 1, 8, 8)},
    ),
    "transpose_reshape_add": Example(
        """g (float[2, 3, 4] x) => (float[8, 3] y) {
            t = Transpose <perm = [0, 2, 1]> (x)
            r = Reshape (t, rows)
            y = Add (r, b)
        }""",
        {"x": (2, 3, 4)},
        {"rows": ints(8, 3), "b": weights(3)},
    ),
    "conv_residual_relu": Example(
        """g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
            s = Add (c, x)
            y = Relu (s)
        }""",
        {"x": (1, 4, 6, 6)},
        {"w": weights(4, 4, 3, 3), "b": weights(4)},
    ),
    "conv_to_tokens": Example(
        """g (float[1, 3, 8, 8] x) => (float[1, 16, 5] y) {
            c = Conv <strides = [2, 2]> (x, w, b)
            r = Reshape (c, flat)
            t = Transpose <perm = [0, 2, 1]> (r)
            y = Add (t, position)
        }""",
        {"x": (1, 3, 8, 8)},
        {"w": weights(5, 3, 2, 2), "b": weights(5), "flat": ints(1, 5, -1), "position": weights(1, 16, 5)},
    ),
    "heads": Example(
        """g (float[1, 6, 8] x) => (float[1, 2, 6, 4] y) {
            p = MatMul (x, w)
            a = Add (p, b)
            r = Reshape (a, split)
            y = Transpose <perm = [0, 2, 1, 3]> (r)
        }""",
        {"x": (1, 6, 8)},
        {"w": weights(8, 8), "b": weights(8), "split": ints(0, 0, 2, 4)},
    ),
    "gelu_with_erf": Example(
        """g (float[2, 6] x) => (float[2, 8] y) {
            p = MatMul (x, w)
            d = Div (p, root)
            e = Erf (d)
            a = Add (e, one)
            m = Mul (p, a)
            y = Mul (m, half)
        }""",
        {"x": (2, 6)},
        {"w": weights(6, 8), "root": np.float32(2**0.5), "one": np.float32(1.0), "half": np.float32(0.5)},
    ),
    "gelu_with_tanh": Example(
        """g (float[2, 6] x) => (float[2, 6] y) {
            c = Pow (x, three)
            s = Mul (c, small)
            a = Add (x, s)
            m = Mul (a, root)
            t = Tanh (m)
            o = Add (t, one)
            h = Mul (x, half)
            y = Mul (h, o)
        }""",
        {"x": (2, 6)},
        {
            "three": np.float32(3.0),
            "small": np.float32(0.044715),
            "root": np.float32(0.7978845608),
            "one": np.float32(1.0),
            "half": np.float32(0.5),
        },
    ),
    "hard_swish_written_out": Example(
        """g (float[1, 3, 4, 4] x) => (float[1, 5, 4, 4] y) {
            c = Conv (x, w)
            n = BatchNormalization (c, scale, bias, mean, variance)
            a = Add (n, three)
            k = Clip (a, zero, six)
            m = Mul (n, k)
            y = Div (m, six)
        }""",
        {"x": (1, 3, 4, 4)},
        {
            "w": weights(5, 3, 1, 1),
            "three": np.float32(3.0),
            "zero": np.float32(0.0),
            "six": np.float32(6.0),
            **BATCH_NORM,
        },
    ),
    "root_mean_square_norm": Example(
        """g (float[2, 5, 16] x) => (float[2, 5, 16] y) {
            s = Pow (x, two)
            m = ReduceMean <axes = [-1]> (s)
            e = Add (m, epsilon)
            r = Sqrt (e)
            i = Reciprocal (r)
            n = Mul (x, i)
            y = Mul (gamma, n)
        }""",
        {"x": (2, 5, 16)},
        {"two": np.float32(2.0), "epsilon": np.float32(1e-6), "gamma": weights(16)},
    ),
    "group_norm_written_out": Example(
        """g (float[1, 6, 4, 4] x) => (float[1, 6, 4, 4] y) {
            r = Reshape (x, groups)
            n = InstanceNormalization (r, ones, zeros)
            u = Reshape (n, whole)
            m = Mul (u, gamma)
            y = Add (m, beta)
        }""",
        {"x": (1, 6, 4, 4)},
        {
            "groups": ints(0, 2, -1),
            "whole": ints(1, 6, 4, 4),
            "ones": np.ones(2, np.float32),
            "zeros": np.zeros(2, np.float32),
            "gamma": weights(6, 1, 1),
            "beta": weights(6, 1, 1, seed=2),
        },
    ),
}

LAYER_NORMS = {
    "power": """d = Sub (x, m) s = Pow (d, two) v = ReduceMean <axes = [-1]> (s)""",
    "product": """d = Sub (x, m) s = Mul (d, d) v = ReduceMean <axes = [-1]> (s)""",
    "two differences": """d = Sub (x, m) d2 = Sub (x, m) s = Pow (d2, two) v = ReduceMean <axes = [-1]> (s)""",
}
LAYER_NORM_ENDS = {
    "quotient": "q = Sqrt (w) n = Div (d, q)",
    "reciprocal": "q = Sqrt (w) i = Reciprocal (q) n = Mul (d, i)",
    "power": "i = Pow (w, minus) n = Mul (d, i)",
}


def layer_norm(middle: str, end: str) -> Example:
    text = f"""g (float[2, 5, 16] x) => (float[2, 5, 16] y) {{
        m = ReduceMean <axes = [-1]> (x)
        {LAYER_NORMS[middle]}
        w = Add (v, epsilon)
        {LAYER_NORM_ENDS[end]}
        g = Mul (n, gamma)
        y = Add (g, beta)
    }}"""
    constants = {
        "two": np.float32(2.0),
        "minus": np.float32(-0.5),
        "epsilon": np.float32(1e-5),
        "gamma": weights(16),
        "beta": weights(16, seed=2),
    }
    return Example(text, {"x": (2, 5, 16)}, constants)


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
    before = graph.text()
    run_passes(graph, verify=True)
    check_golden(f"passes/{name}.txt", f"{before}\n\n{graph.text()}")


@pytest.mark.parametrize("name", EXAMPLES)
def test_results_stay_the_same_whichever_pass_is_off(name: str):
    example = EXAMPLES[name]
    feeds = example.inputs()
    expected = run_graph(example.graph(), feeds)
    for disabled in [(), *((each,) for each in PASS_NAMES)]:
        graph = example.graph()
        run_passes(graph, disabled=disabled, verify=True)
        _assert_same_results(expected, run_graph(graph, feeds), 1e-6)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_second_run_changes_nothing(name: str):
    graph = EXAMPLES[name].graph()
    run_passes(graph)
    text = graph.text()
    run_passes(graph)
    assert graph.text() == text


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_origin_is_lost(name: str):
    """Every ONNX node whose work is left is named by a node of the graph that the outputs depend on."""
    graph = EXAMPLES[name].graph()
    before = {origin for node in graph.nodes for origin in node.origins}
    run_passes(graph)
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
    run_passes(graph)
    assert len(_kernels(graph)) == 1


@pytest.mark.parametrize("name", FUSED)
def test_what_exporters_spell_out_is_one_kernel(name: str):
    example = FUSED[name]
    graph = example.graph()
    feeds = example.inputs()
    expected = run_graph(graph, feeds)
    run_passes(graph, verify=True)
    _assert_same_results(expected, run_graph(graph, feeds), 1e-5)
    assert len(_kernels(graph)) == 1, graph.text()


def test_batch_normalisation_leaves_convolution_and_bias():
    for name in ("conv_batch_norm_relu", "conv_batch_norm_one_dimension", "conv_scale_written_out"):
        graph = EXAMPLES[name].graph()
        run_passes(graph)
        left = [node.op for node in graph.nodes if node.op not in ("View", "Relu")]
        assert left == ["Convolution", "Add"], name


@pytest.mark.parametrize("middle", LAYER_NORMS)
@pytest.mark.parametrize("end", LAYER_NORM_ENDS)
def test_layer_normalisation_spelled_out_is_one_kernel(middle: str, end: str):
    example = layer_norm(middle, end)
    graph = example.graph()
    feeds = example.inputs()
    expected = run_graph(graph, feeds)
    run_passes(graph, verify=True)
    assert _kernels(graph) == ["reduce"]
    _assert_same_results(expected, run_graph(graph, feeds), 1e-5)


def test_dynamic_rows_run_at_every_size():
    example = EXAMPLES["matmul_rows_dynamic"]
    graph = example.graph()
    run_passes(graph, verify=True)
    generator = np.random.default_rng(0)
    for shape in ((1, 1, 7), (2, 3, 7), (8, 5, 7)):
        x = generator.standard_normal(shape).astype(np.float32)
        expected = x @ example.initializers["w"] + example.initializers["b"]
        _assert_same_results([expected], run_graph(graph, {"x": x}), 1e-6)


def test_a_shared_result_is_not_scaled():
    example = Example(
        """g (float[1, 3, 5, 5] x) => (float[1, 4, 5, 5] y, float[1, 4, 5, 5] c) {
            c = Conv (x, w)
            y = Mul (c, s)
        }""",
        {"x": (1, 3, 5, 5)},
        {"w": weights(4, 3, 1, 1), "s": weights(4, 1, 1)},
    )
    trace = []
    graph = example.graph()
    run_passes(graph, trace=trace)
    assert [node.op for node in graph.nodes] == ["Convolution", "Mul"]
    assert "the unscaled result is needed too" in {entry.refused for entry in trace}


@pytest.mark.parametrize(
    ("factor", "reason"),
    [
        (np.float32(np.inf), "the factor is not finite"),
        (np.float32(1e-38), "the factor is near the ends of the range of floats"),
        (weights(5), "the factor changes along other axes than that of output channels"),
    ],
)
def test_refused_factors(factor: np.ndarray, reason: str):
    example = Example(
        "g (float[1, 3, 5, 5] x) => (float[1, 4, 5, 5] y) { c = Conv (x, w) y = Mul (c, s) }",
        {"x": (1, 3, 5, 5)},
        {"w": weights(4, 3, 1, 1), "s": factor},
    )
    trace = []
    graph = example.graph()
    run_passes(graph, trace=trace)
    assert [node.op for node in graph.nodes] == ["Convolution", "Mul"]
    assert reason in {entry.refused for entry in trace}


LARGE_WEIGHT = """g (float[1, 200] x) => (float[1, 200] y) {
    BEFORE
    c = MatMul (a, w)
    AFTER
}"""


@pytest.mark.parametrize(
    ("before", "after", "factor", "reason"),
    [
        ("a = Mul (x, s)", "y = Neg (c)", weights(200), "scaling the large weight costs more than scaling the operand"),
        (
            "a = Neg (x)",
            "y = Mul (c, s)",
            np.float32(0.3),
            "scaling the large weight costs more than multiplying by one number",
        ),
        ("a = Neg (x)", "y = Mul (c, s)", weights(200), None),
    ],
)
def test_large_weights_are_scaled_for_vectors_of_outputs_alone(before, after, factor, reason):
    text = LARGE_WEIGHT.replace("BEFORE", before).replace("AFTER", after)
    example = Example(text, {"x": (1, 200)}, {"w": weights(200, 200), "s": factor})
    trace = []
    graph = example.graph()
    run_passes(graph, trace=trace)
    multiplied = next(node for node in graph.nodes if node.op == "Mul")
    assert (multiplied.output.shape == (200, 200)) == (reason is None)
    assert reason is None or reason in {entry.refused for entry in trace}


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
    run_passes(graph, verify=True)
    assert not any(group.constant for group in fuse(graph).groups if any(map(_is_dynamic, group.output.shape)))
    for size in (1, 3, 9):
        x = weights(size, 4, seed=9)
        _assert_same_results([x + 2 * example.initializers["c"]], run_graph(graph, {"x": x}), 1e-6)


def _is_dynamic(size) -> bool:
    return not isinstance(size, int)


def test_zero_is_added_because_of_its_sign():
    graph = EXAMPLES["neutral_elements"].graph()
    run_passes(graph)
    (result,) = (array for array in run_graph(graph, {"x": np.full((3, 4), -0.0, np.float32), "i": ints(1, 2, 3)
                 .astype(np.int32)})[2:])  # fmt: skip
    assert not np.signbit(result).any()


def test_an_unknown_pass_is_refused():
    with pytest.raises(InputError, match="there is no pass 'loyout'"):
        run_passes(Graph("g"), disabled={"loyout"})


def test_reports_name_each_pass_once():
    reports = []
    graph = EXAMPLES["conv_batch_norm_relu"].graph()
    run_passes(graph, on_pass=lambda report, _: reports.append(report))
    assert tuple(report.name for report in reports) == PASS_NAMES
    assert reports[-1].nodes == len(graph.nodes)


@pytest.mark.parametrize(("name", "shape"), [("ppocr_cls", (1, 3, 48, 64)), ("ppocr_rec", (1, 3, 48, 64))])
def test_trained_models_compute_the_same(name: str, shape: tuple[int, ...]):
    from shaderloom.compiler.frontend import load_model
    from shaderloom.compiler.passes.expand import expand
    from shaderloom.compiler.specialise import bind_shapes, specialise

    model = load_model(trained_model(name))
    feeds = {model.inputs[0].name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    graph = specialise(model, bind_shapes(model, {key: array.shape for key, array in feeds.items()}).shapes)
    expand(graph)
    before = len(_kernels(graph))
    expected = run_graph(graph, feeds)
    run_passes(graph, verify=True)
    verify(graph)
    assert len(_kernels(graph)) <= before
    _assert_same_results(expected, run_graph(graph, feeds), 1e-4)
