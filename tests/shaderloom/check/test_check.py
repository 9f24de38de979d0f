"""``check``: it agrees with right models, and names the kernel and the ONNX node of every kind of planted fault."""

from __future__ import annotations

import json
from dataclasses import replace

import jinja2
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

from shaderloom.check.check import Checker
from shaderloom.check.comparison import compare, not_finite
from shaderloom.check.onnx_model import OnnxModel
from shaderloom.check.references import FileReference, open_reference
from shaderloom.cli import app
from shaderloom.compiler import driver
from shaderloom.compiler.codegen import render
from shaderloom.compiler.ir.layout import Layout
from shaderloom.compiler.kernels.results import ResultWriter
from shaderloom.compiler.ops.registry import registry
from shaderloom.compiler.passes import pipeline
from shaderloom.compiler.passes.manager import Pass, PassManager
from shaderloom.model.model import Model
from shaderloom.plans.instrument import decode, observed
from shaderloom.runtime.plan.errors import InputError
from shaderloom.runtime.plan.facts import StoredLayout, TensorFacts, TensorKind

pytest.importorskip("onnxruntime")

HEAD = '<ir_version: 9, opset_import: ["" : 17]>'

#: Two convolutions with a pool between them, a row of views, a product and a softmax
NETWORK = """
network (float[1,4,8,8] x) => (float[1,10] y)
<float[8,4,3,3] w1, float[8] b1, float[8,8,1,1] w2, float[512,10] w3> {
    c1 = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
    r1 = Relu (c1)
    p = MaxPool <kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1]> (r1)
    c2 = Conv (p, w2)
    s = Add (c2, r1)
    t = Tanh (s)
    f = Flatten (t)
    g = MatMul (f, w3)
    y = Softmax (g)
}"""

#: A reduction of few long rows: threads of a workgroup share it
ROWS = """
rows (float[2,8192] x) => (float[2,1] y) {
    a = Abs (x)
    m = ReduceMean <axes = [1], keepdims = 1> (a)
    y = Sqrt (m)
}"""

HALF = """
half (float16[4,64] x, float16[64,64] w) => (float16[4,64] y) {
    big = MatMul (x, w)
    e = Mul (big, big)
    l = MatMul (e, w)
    y = Relu (l)
}"""


def build(text: str, seed: int = 3) -> onnx.ModelProto:
    """A model from text; initializers that the text only declares are drawn."""
    model = onnx.parser.parse_model(f"{HEAD}{text}")
    generator = np.random.default_rng(seed)
    computed = {output for node in model.graph.node for output in node.output}
    for info in model.graph.value_info:
        if info.name in computed:
            continue
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        array = (generator.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    return model


def feeds_of(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    result = {}
    for port in model.graph.input:
        shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
        result[port.name] = generator.standard_normal(shape).astype(dtype)
    return result


@pytest.fixture
def check(device, tmp_path):
    """Checks a model per node; gives the result."""

    def run(text: str, against: str = "onnxruntime", feeds: dict | None = None, per_node: bool = True, **options):
        path = tmp_path / "model.onnx"
        proto = build(text)
        path.write_bytes(proto.SerializeToString())
        source = OnnxModel(path)
        model = Model(path, cache=False, options=options)
        values = feeds or feeds_of(proto)
        with Checker(model, source, open_reference(against, source), device, values) as checker:
            return checker.run(per_node=per_node)

    return run


def plant_in_template(monkeypatch, name: str, old: str, new: str) -> None:
    """Change the text of one template, for this test."""
    original = render.environment()

    def source(wanted: str) -> str | None:
        text = original.loader.get_source(original, wanted)[0]
        if wanted == name:
            assert old in text, f"{name} does not hold {old!r}"
            text = text.replace(old, new)
        return text

    patched = original.overlay(loader=jinja2.FunctionLoader(source), cache_size=0)
    monkeypatch.setattr(render, "environment", lambda: patched)
    monkeypatch.setattr(render, "template_text", render.template_text.__wrapped__)  # texts are kept


# -- right models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("against", ["onnxruntime", "reference"])
@pytest.mark.parametrize("text", [NETWORK, ROWS], ids=["network", "rows"])
def test_right_models_agree(check, text, against):
    result = check(text, against)
    assert result.is_close
    assert result.diagnosis is None
    assert result.non_finite == []


def test_every_materialised_onnx_tensor_is_compared(check):
    result = check(NETWORK)
    assert [row.tensor for row in result.rows] == ["r1", "p", "t", "g", "y"]
    assert result.rows[0].node == "Relu (main node 1)"
    apart = check(NETWORK, disabled_passes=["fuse"])
    assert {"c1", "r1", "p", "c2", "s", "t", "g", "y"} <= {row.tensor for row in apart.rows}
    assert apart.is_close


@pytest.mark.parametrize("rounds", [False, True])
def test_activations_that_a_file_allows_to_round(device, tmp_path, rounds: bool) -> None:
    """Those of the reference are floats; its distance from rounded ones is allowed where kernels round."""
    generator = np.random.default_rng(4)
    codes, scales = generator.integers(0, 256, (8, 2, 16), np.uint8), generator.uniform(0.1, 0.3, (8, 2))
    body = "{ y = com.microsoft.MatMulNBits <K = 64, N = 8, block_size = 32, accuracy_level = 4> (x, codes, scales) }"
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]> g (float[3,64] x) => (float[3,8] y) {body}'
    )
    weights = {"codes": codes, "scales": scales.astype(np.float32)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    source = OnnxModel(path)
    reference = open_reference("onnxruntime", source, rounds_activations=rounds)
    with Checker(Model(path, cache=False), source, reference, device, feeds_of(proto)) as checker:
        (row,) = checker.run(per_node=True).rows
    assert row.difference.error < 1e-6
    assert (row.difference.tolerance > 1e-3) == rounds


def test_outputs_alone(check):
    assert [row.tensor for row in check(NETWORK, per_node=False).rows] == ["y"]


# -- planted faults ----------------------------------------------------------------------------------------------------


def test_a_wrong_constant_in_a_template(check, monkeypatch):
    plant_in_template(monkeypatch, "conv/window.wgsl.j2", "initial()", "max(initial(), 0.75)")
    result = check(NETWORK, per_node=False)
    diagnosis = result.diagnosis
    assert diagnosis.kind == "kernel"
    assert "window" in diagnosis.kernel
    assert (diagnosis.tensor, diagnosis.node) == ("p", "MaxPool (main node 2)")
    assert diagnosis.worst.worst, "the worst elements are listed"
    element = diagnosis.worst.worst[0]
    assert len(element.index) == 4 and element.got != element.expected


def test_a_wrong_constant_that_fusion_hides(check, monkeypatch):
    """The fault is in the code for products: of the kernels that use it the first in graph order is named."""
    plant_in_template(monkeypatch, "gemm/gemm_register.wgsl.j2", "var step = 0", "var step = 1")
    result = check(NETWORK)
    diagnosis = result.diagnosis
    assert diagnosis.kind == "kernel"
    assert "gemm_register" in diagnosis.kernel
    assert diagnosis.node == "Conv (main node 0)"
    assert diagnosis.tensor == "r1"
    assert any("with fusion off" in finding and "'c1'" in finding for finding in diagnosis.findings)


def test_swapped_strides(check, monkeypatch):
    """A kernel writes its result with two axes swapped; only the fused kernel does."""
    store = ResultWriter._store

    def swapped(self, output, where, value, condition):
        result = store(self, output, where, value, condition)
        if output.name != "t" or self._group.region is None or len(self._group.nodes) < 2:
            return result
        order = list(output.layout.order)
        order[1], order[2] = order[2], order[1]
        return replace(result, position=Layout(tuple(order)).position(output.shape, where))

    monkeypatch.setattr(ResultWriter, "_store", swapped)
    diagnosis = check(NETWORK).diagnosis
    assert diagnosis.kind == "kernel"
    assert diagnosis.tensor == "t"
    assert diagnosis.node == "Conv (main node 3)"
    assert set(diagnosis.origins) == {"Conv (main node 3)", "Add (main node 4)", "Tanh (main node 5)"}
    assert any("with fusion off every ONNX tensor of the group is right" in finding for finding in diagnosis.findings)


def test_a_missing_barrier(check, monkeypatch):
    plant_in_template(monkeypatch, "reduce/reduce_workgroup.wgsl.j2", "workgroupBarrier();", "")
    # Sizes of their own: workgroup memory may still hold the right numbers of another test's run, or of the first run
    # of these while the diagnosis looks for the kernel.
    for size in (8448, 8704, 8960, 9216):
        diagnosis = check(ROWS.replace("8192", str(size))).diagnosis
        if diagnosis is not None and diagnosis.kind == "kernel":
            break
    else:
        raise AssertionError("without barriers some thread must have read too early")
    assert "reduce_workgroup" in diagnosis.kernel
    assert diagnosis.node == "ReduceMean (main node 1)"


@pytest.mark.parametrize(("wrong", "node"), [("t", "Tanh (main node 5)"), ("c2", "Conv (main node 3)")])
def test_a_wrong_reference(check, tmp_path, wrong, node):
    """Where onnx's reference evaluator agrees with the device, the expected tensor is at fault; without the operands of
    its node is not identified.
    """
    model = build(NETWORK)
    feeds = feeds_of(model)
    names = [name for each in model.graph.node for name in each.output]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    expected = dict(zip(names, ReferenceEvaluator(model).run(None, feeds)))
    expected[wrong] = expected[wrong] + np.float32(0.1)
    np.savez(tmp_path / "expected.npz", **expected)
    result = check(NETWORK, str(tmp_path / "expected.npz"), feeds, disabled_passes=["fuse"])
    assert [row.tensor for row in result.differing] == [wrong]
    diagnosis = result.diagnosis
    assert (diagnosis.kind, diagnosis.node) == ("reference", node)
    assert "onnx's reference evaluator gives what Shaderloom does" in diagnosis.findings[-1]
    np.savez(tmp_path / "expected.npz", **{wrong: expected[wrong]})
    result = check(NETWORK, str(tmp_path / "expected.npz"), feeds, disabled_passes=["fuse"])
    assert (result.diagnosis.kind, result.diagnosis.node) == ("operator", node)


def test_a_wrong_reference_of_a_branch_blames_no_pass(device, tmp_path):
    """Without passes the result of a branch is no tensor of its own: then nothing tells whether it is right."""
    text = """g (float[4] x) => (float[4] y) <float zero = {0}> { m = ReduceSum<keepdims = 0>(x)  c = Greater(m, zero)
        y = If (c) < then_branch = a () => (float[p] t) { t = Exp(x) },
                     else_branch = b () => (float[q] e) { e = Neg(x) } > }"""
    x = np.arange(4, dtype=np.float32)
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(HEAD + text).SerializeToString())
    np.savez(tmp_path / "expected.npz", y=np.exp(x) + 3)
    source = OnnxModel(path)
    reference = open_reference(str(tmp_path / "expected.npz"), source)
    with Checker(Model(path, cache=False), source, reference, device, {"x": x}) as checker:
        diagnosis = checker.run(per_node=False).diagnosis
    assert (diagnosis.kind, diagnosis.pass_name) == ("unknown", "")


def test_texts_are_compared():
    left = np.array(["a", "b"], object)
    assert compare(left, np.array(["a", "b"])).is_close
    difference = compare(left, np.array(["a", "c"]))
    assert not difference.is_close and (difference.worst[0].got, difference.worst[0].expected) == ("b", "c")


def test_a_half_float_overflow(check, tmp_path):
    """The expected values come from float32; the first tensor that leaves the range of float16 is named."""
    generator = np.random.default_rng(2)
    x, w = (generator.uniform(4, 8, shape).astype(np.float16) for shape in ((4, 64), (64, 64)))
    big = x.astype(np.float32) @ w.astype(np.float32)
    square = big * big
    last = square @ w.astype(np.float32)
    np.savez(tmp_path / "expected.npz", big=big, e=square, l=last, y=np.maximum(last, 0))
    result = check(HALF, str(tmp_path / "expected.npz"), {"x": x, "w": w}, widen="off")
    assert not result.is_close
    item = result.non_finite[0]
    assert "65504" in item.what and item.expected is False
    assert item.tensor == "e", "it is computed in the kernel of the first product"
    diagnosis = result.diagnosis
    assert (diagnosis.kind, diagnosis.tensor, diagnosis.kernel) == ("overflow", "e", item.kernel)
    assert diagnosis.node == "Mul (main node 1)"
    assert set(diagnosis.origins) == {"MatMul (main node 0)", "Mul (main node 1)"}
    assert "widen = 'auto'" in diagnosis.findings[0]


GROWING = """
grow (float[8,64] x) => (float[8,64] y) <float[64,64] w, float[64,64] v> {
    a = MatMul (x, w)
    b = Exp (a)
    c = MatMul (b, v)
    d = Abs (c)
    e = Sqrt (d)
    y = MatMul (e, w)
}"""


def test_an_overflow_of_a_float32_model_in_half_precision(check, device, tmp_path):
    """Calibrated with small inputs: the kernel and the node that leave the range of float16 are named.  Calibrated with
    the inputs that are checked nothing leaves it."""
    feeds = {"x": feeds_of(build(GROWING))["x"] * 4}
    assert check(GROWING, feeds=feeds, precision="float16").is_close
    path = tmp_path / "model.onnx"
    source = OnnxModel(path)
    model = Model(path, cache=False, options={"precision": "float16"})
    small = {"x": feeds["x"] * np.float32(0.01)}
    reference = open_reference("onnxruntime", source)
    with Checker(model, source, reference, device, feeds, calibration=small) as checker:
        result = checker.run(per_node=True)
    assert not result.is_close
    item = result.non_finite[0]
    assert (item.tensor, item.dtype, item.expected) == ("b", "float16", False)
    assert "65504" in item.what
    assert set(item.origins) == {"MatMul (main node 0)", "Exp (main node 1)"}
    diagnosis = result.diagnosis
    assert (diagnosis.kind, diagnosis.tensor, diagnosis.kernel) == ("overflow", "b", item.kernel)
    assert diagnosis.node == "Exp (main node 1)"


def test_not_a_number_that_the_reference_has_too(check):
    feeds = {"x": np.where(np.arange(16384).reshape(2, 8192) == 9000, np.nan, 1.0).astype(np.float32)}
    result = check(ROWS, feeds=feeds)
    assert result.is_close
    assert result.non_finite == [], "the input has it already"
    logarithm = "log (float[4] x) => (float[4] y) { y = Log (x) }"
    result = check(logarithm, feeds={"x": np.array([1, 0, -1, 2], np.float32)})
    assert result.is_close
    (item,) = result.non_finite
    assert (str(item.counts), item.expected) == ("1 NaN and 1 infinite", True)


def test_rounding_that_the_model_magnifies(check):
    """A variance by subtraction, of numbers that hardly vary: no two orders of additions agree."""
    text = """v (float[4,4096] x) => (float[4,1] y) {
        s = Mul (x, x)
        m = ReduceMean <axes = [1], keepdims = 1> (s)
        a = ReduceMean <axes = [1], keepdims = 1> (x)
        q = Mul (a, a)
        y = Sub (m, q)
    }"""
    x = (1000 + np.random.default_rng(1).standard_normal((4, 4096)) * 0.01).astype(np.float32)
    result = check(text, feeds={"x": x})
    assert not result.is_close
    assert result.diagnosis.kind == "rounding"
    assert "magnifies rounding" in result.diagnosis.findings[0]


def plant_pass(monkeypatch, op: str) -> None:
    """A pass 'drop' behind the rewrites: it takes nodes of one operator away."""

    def drop(lowering, compilation):
        for node in lowering.graph.nodes:
            if node.op == op:
                lowering.graph.replace_uses(node.output, node.operand(0))
        return lowering.graph.remove_dead()

    position = pipeline.PIPELINE.position(pipeline.LAST_REWRITE) + 1
    passes = list(pipeline.PIPELINE.passes)
    passes.insert(position, Pass("drop", drop))
    for module in (pipeline, driver):
        monkeypatch.setattr(module, "PIPELINE", PassManager(passes))


def test_a_pass_that_drops_a_node(check, monkeypatch):
    plant_pass(monkeypatch, "Tanh")
    diagnosis = check(NETWORK).diagnosis
    assert (diagnosis.kind, diagnosis.pass_name) == ("pass", "drop")
    assert diagnosis.node == "Tanh (main node 5)"
    assert diagnosis.tensor == "g", "t itself is not computed any more"
    assert "gemm" in diagnosis.kernel


def test_a_wrong_definition_of_an_operator(check, monkeypatch):
    definition = registry.get("Tanh", "")
    wrong = replace(definition, element=registry.get("Sigmoid", "").element)
    monkeypatch.setattr(registry, "of", lambda node, of=registry.of: wrong if node.op == "Tanh" else of(node))
    diagnosis = check(NETWORK).diagnosis
    assert (diagnosis.kind, diagnosis.node) == ("operator", "Tanh (main node 5)")


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def command(device, tmp_path, monkeypatch):
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    path = tmp_path / "network.onnx"
    path.write_bytes(build(NETWORK).SerializeToString())

    def run(*arguments: object, status: int = 0):
        result = CliRunner().invoke(app, ["check", str(path), *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result

    return run


def test_command_says_what_agrees(command, tmp_path):
    assert "1 tensor agrees with onnxruntime" in command().output
    facts = json.loads(command("--per-node", "--json").stdout)
    assert facts["close"] and len(facts["tensors"]) == 5
    np.savez(tmp_path / "in.npz", x=np.ones((1, 4, 8, 8), np.float32))
    assert "agree" in command("--inputs", tmp_path / "in.npz").output


def test_command_fails_when_results_differ(command, monkeypatch):
    plant_in_template(monkeypatch, "conv/window.wgsl.j2", "initial()", "max(initial(), 0.75)")
    output = command(status=1).output
    assert "first difference: tensor 'p'" in output
    assert "ONNX node: MaxPool (main node 2)" in output
    assert json.loads(command("--json", status=1).stdout)["diagnosis"]["kind"] == "kernel"


def test_command_refuses_what_it_cannot_compare_with(command, tmp_path):
    assert "cannot check against 'magic'" in command("--against", "magic", status=1).stderr
    assert "cannot read" in command("--against", tmp_path / "none.npz", status=1).stderr
    assert "--inputs wants a .npz file" in command("--inputs", tmp_path / "x.npy", status=1).stderr
    np.savez(tmp_path / "other.npz", another=np.zeros(3))
    assert "nothing was compared" in command("--against", tmp_path / "other.npz", status=1).stdout
    facts = json.loads(command("--against", tmp_path / "other.npz", "--json", status=1).stdout)
    assert not facts["close"] and facts["tensors"] == []


# -- the parts ---------------------------------------------------------------------------------------------------------


def test_layouts_are_undone():
    logical = np.arange(2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
    stored = np.zeros((2, 8, 3), np.float32)  # axis 1 padded to 8, in blocks of 4, axis 2 before it
    stored[:, :5] = logical
    physical = stored.reshape(2, 2, 4, 3).transpose(0, 3, 1, 2)
    layout = StoredLayout((0, 2, 1), (), ((1, 4),), "")
    tensor = TensorFacts("x", "main", "", "float32", (2, 5, "n"), layout, TensorKind.ACTIVATION)
    np.testing.assert_array_equal(decode(np.ascontiguousarray(physical).view(np.uint32), tensor, {"n": 3}), logical)
    half = np.arange(3, dtype=np.float16)
    words = np.zeros(4, np.uint16)
    words[:3] = half.view(np.uint16)
    tensor = TensorFacts("x", "main", "", "float16", (3,), StoredLayout((0,), (), (), ""), TensorKind.ACTIVATION)
    np.testing.assert_array_equal(decode(words.view(np.uint32), tensor, {}), half)


def test_many_tensors_take_several_runs(check, monkeypatch):
    monkeypatch.setattr("shaderloom.plans.instrument.COPIED_BYTES", 3000)
    assert check(NETWORK).is_close


def test_observing_changes_no_kernel(device, tmp_path):
    from shaderloom.inspect.pass_trace import trace_passes

    path = tmp_path / "model.onnx"
    proto = build(NETWORK)
    path.write_bytes(proto.SerializeToString())
    plan = trace_passes(Model(path, cache=False), {"x": (1, 4, 8, 8)}, device.profile).plan
    changed = observed(plan, range(len(plan.calls)))
    assert [call for call in changed.calls if call.label != "copy"] == plan.calls
    assert changed.arenas == plan.arenas
    assert len(observed(plan, [0]).calls) == 2, "what comes after is not run"


def test_comparison():
    one = np.array([1.0, 2.0, 4.0], np.float32)
    assert compare(one, one).is_close
    near = compare(one + np.float32(1e-5), one)
    assert near.is_close and 0 < near.error < 1e-4
    far = compare(one + np.array([0, 0, 1], np.float32), one)
    assert not far.is_close and far.error == pytest.approx(0.25)
    assert [item.index for item in far.worst] == [(2,)]
    assert compare(one + np.float32(0.1), one, other=one + np.float32(0.05)).is_close, "rounding alone does as much"
    assert compare(np.array([np.nan, np.inf]), np.array([np.nan, np.inf])).is_close
    assert compare(np.array([np.inf, 1.0]), np.array([-np.inf, 1.0])).error == np.inf
    assert compare(np.array([1.0, 1.0]), np.array([np.nan, 1.0])).error == np.inf
    mask = np.array([-3.4e38, 1.0], np.float32)
    assert compare(mask, mask).is_close
    assert not compare(mask + np.array([0, 0.01], np.float32), mask).is_close
    assert compare(np.array([1, 2]), np.array([1, 3])).worst[0].index == (1,)
    assert "shape" in compare(np.zeros(2), np.zeros(3)).reason
    assert "type" in compare(np.zeros(2, np.int32), np.zeros(2, np.int64)).reason
    assert compare(np.zeros((0, 3)), np.zeros((0, 3))).is_close
    assert not_finite(np.array([1, 2])) is None
    assert str(not_finite(np.array([np.nan, np.inf, -np.inf, 0.0]))) == "1 NaN and 2 infinite"


def test_files_that_are_no_archives(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04nonsense")
    with pytest.raises(InputError):
        FileReference(tmp_path / "bad.npz")
