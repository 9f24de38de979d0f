"""``precision="float16"``: float32 models with half-precision storage, and what stays float32.

Covers: compiler/precision.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import shaderloom
from shaderloom.bundles.compile import NATIVE, compile_bundle
from shaderloom.bundles.session import load_bundle
from shaderloom.bundles.verify import verify_samples
from shaderloom.cli import app
from shaderloom.compiler.target import target_of
from shaderloom.model.feeds import shape_key
from shaderloom.model.model import Model
from shaderloom.runtime.bundle.manifest import Manifest
from shaderloom.runtime.plan.device_profile import DeviceProfile
from shaderloom.runtime.plan.errors import InputError
from shaderloom.runtime.plan.plan import Plan
from tests.support.comparison import reference, relative_error
from tests.support.effort import slow
from tests.support.inputs import photograph, text_line, tokens
from tests.support.models import filled_model, trained_model
from tests.support.running import compile_for, run_plan

TOLERANCE = 2e-2

MODELS = {
    "squeezenet1_1": lambda: (filled_model("squeezenet1_1"), {"input": photograph(224)}),
    "mobilenet_v2": lambda: (filled_model("mobilenet_v2"), {"input": photograph(224)}),
    "ppocr_cls": lambda: (trained_model("ppocr_cls"), {"x": text_line(192)}),
    "ppocr_rec": lambda: (trained_model("ppocr_rec"), {"x": text_line(320)}),
    "bert_small": lambda: (
        filled_model("bert_small_dynamic"),
        {"input_ids": tokens(1, 65, 1000), "attention_mask": (np.arange(65)[None] < 49).astype(np.int64)},
    ),
    "gpt2_small": lambda: (filled_model("gpt2_small"), {"input_ids": tokens(1, 64, 1000)}),
    "decoder": lambda: (filled_model("decoder_kv"), _decoder_feeds(7, 5)),
}


def _decoder_feeds(length: int, past: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(past)
    caches = {
        f"past.{layer}.{side}": generator.standard_normal((1, 2, past, 32)).astype(np.float32)
        for layer in range(4)
        for side in "kv"
    }
    return {"input_ids": tokens(1, length, 1000), **caches}


def half() -> shaderloom.SessionOptions:
    options = shaderloom.SessionOptions()
    options.precision = "float16"
    return options


def session(model: object, device: object, **options: object) -> shaderloom.InferenceSession:
    return shaderloom.InferenceSession(model, half(), device=device, cache=False, options={"verify": True}, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models_in_half_precision(name: str, device) -> None:
    path, feeds = MODELS[name]()
    with session(path, device) as half_session:
        results = half_session.run(None, feeds)
        report = half_session.report()
    for result, expected in zip(results, reference(path, feeds), strict=True):
        assert relative_error(result, expected) <= TOLERANCE
    full = full_plan(path, feeds, device.profile)
    assert report["calls"] == len(full.calls), "conversions cost no kernels"
    assert report["weight_bytes"] < 0.55 * full.notes.memory.weight_bytes
    assert report["device_bytes"]["weights"] == report["weight_bytes"]
    # of all tensors: where two float32 ones decide how much memory is planned, as in ppocr_rec, halves save none
    assert report["naive_bytes"] < full.notes.memory.naive_bytes
    assert [port["dtype"] for port in report["outputs"]] == [port.dtype for port in full.outputs]


def full_plan(path: object, feeds: dict[str, np.ndarray], profile: DeviceProfile) -> Plan:
    """The plan of the same model in float32."""
    model = Model(path, cache=False)
    shapes = {name: array.shape for name, array in feeds.items()}
    try:
        return model.compile(shape_key(model.header, shapes, {}), shapes, profile).plan
    finally:
        model.close()


def graph(
    nodes: list[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    inputs: dict[str, list[int | str]],
    outputs: tuple[str, ...] = ("y",),
    integers: tuple[str, ...] = (),
) -> onnx.ModelProto:
    made = helper.make_graph(
        nodes,
        "half",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64 if name in integers else TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def square(seed: int, size: int = 64) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((size, size)) / np.sqrt(size)).astype(np.float32)


def growing_model() -> onnx.ModelProto:
    """In the middle values reach about 1e5; they come back into the range."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Exp", ["a"], ["b"], name="grow"),
        helper.make_node("MatMul", ["b", "v"], ["c"], name="second"),
        helper.make_node("Abs", ["c"], ["absolute"]),
        helper.make_node("Add", ["absolute", "one"], ["positive"]),
        helper.make_node("Log", ["positive"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["y"], name="third"),
    ]
    weights = {"w": square(1), "v": square(2), "one": np.float32(1)}
    return graph(nodes, weights, {"x": ["rows", 64]})


def growing_input(rows: int, seed: int = 3) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((rows, 64)).astype(np.float32)
    return (x * 11.7 / (x @ square(1)).max()).astype(np.float32)  # exp(11.7) is 1.2e5


def full_precision(report: dict) -> dict[str, str]:
    return {row["tensor"]: row["why"] for row in report["precision"]["full_precision"]}


def test_a_planted_overflow_stays_in_float32(each_device) -> None:
    model, feeds = growing_model(), {"x": growing_input(17)}
    with session(model, each_device) as half_session:
        (result,) = half_session.run(None, feeds)
        report = half_session.report()
    (expected,) = reference(model.SerializeToString(), feeds)
    assert relative_error(result, expected) <= TOLERANCE
    why = full_precision(report)["b"]
    assert "1.2e+05" in why and "65504" in why
    types = {row["name"]: row["dtype"] for row in report["tensors"]}
    halves = "float16" if target_of(each_device.profile).converts_halves else "float32"
    assert types["b"] == "float32" and types["d"] == halves


def test_without_the_range_check_it_overflows(device) -> None:
    model, feeds = growing_model(), {"x": growing_input(17)}
    with shaderloom.InferenceSession(
        model, device=device, cache=False, options={"precision": "float16", "reached": []}
    ) as unchecked:
        (result,) = unchecked.run(None, feeds)
    assert not np.isfinite(result).all()


def test_what_was_seen_counts_for_other_shapes(device) -> None:
    with session(growing_model(), device) as half_session:
        half_session.run(None, {"x": growing_input(17)})
        small = growing_input(3) * 0.01
        half_session.run(None, {"x": small})
        assert "b" in full_precision(half_session.report())


def test_real_inputs_replace_the_assumed_ones(device) -> None:
    feeds = {"x": growing_input(17)}
    with session(growing_model(), device) as half_session:
        half_session.prepare({"x": (17, 64)})
        assert "b" not in full_precision(half_session.report())
        (result,) = half_session.run(None, feeds)
        assert "b" in full_precision(half_session.report())
    assert np.isfinite(result).all()


def test_calibration_with_more_inputs(device) -> None:
    with session(growing_model(), device) as half_session:
        half_session.run(None, {"x": growing_input(17) * 0.01})
        assert "b" not in full_precision(half_session.report())
        half_session.calibrate({"x": growing_input(5)})
        (result,) = half_session.run(None, {"x": growing_input(17)})
        assert "b" in full_precision(half_session.report())
        assert np.isfinite(result).all()
    with (
        shaderloom.InferenceSession(growing_model(), device=device, cache=False) as full,
        pytest.raises(InputError, match="no precision to calibrate"),
    ):
        full.calibrate({"x": growing_input(5)})


def test_a_mask_that_the_sample_does_not_use_stays_in_float32(device) -> None:
    """Calibrated without hidden elements; a run that hides all of a row is right all the same."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Where", ["hidden", "lowest", "scores"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "w"], ["y"]),
    ]
    nodes.insert(0, helper.make_node("Cast", ["mask"], ["hidden"], to=TensorProto.BOOL))
    weights = {"w": square(1), "lowest": np.float32(-3e38)}
    model = graph(nodes, weights, {"x": [5, 64], "mask": [5, 64]}, integers=("mask",))
    x = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    hidden = np.zeros((5, 64), np.int64)
    with session(model, device) as half_session:
        half_session.run(None, {"x": x, "mask": hidden})
        hidden[2] = 1
        hidden[3, ::2] = 1
        (result,) = half_session.run(None, {"x": x, "mask": hidden})
        assert "constant beyond" in full_precision(half_session.report())["masked"]
    (expected,) = reference(model.SerializeToString(), {"x": x, "mask": hidden})
    assert relative_error(result, expected) <= TOLERANCE


def test_weights_that_do_not_fit(device) -> None:
    large, tiny = square(1), square(2)
    large[3, 4] = 1e5
    tiny *= 1e-6
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["a"]),
        helper.make_node("MatMul", ["z", "tiny"], ["b"]),
        helper.make_node("MatMul", ["v", "fine"], ["c"]),
        helper.make_node("Concat", ["a", "b", "c"], ["y"], axis=1),
    ]
    model = graph(nodes, {"large": large, "tiny": tiny, "fine": square(3)}, {name: [6, 64] for name in "xzv"})
    generator = np.random.default_rng(0)
    feeds = {name: generator.standard_normal((6, 64)).astype(np.float32) for name in "xzv"}
    with session(model, device) as half_session:
        (result,) = half_session.run(None, feeds)
        reasons = full_precision(half_session.report())
    assert "1e+05" in reasons["large"]
    assert "few bits" in reasons["tiny"]
    assert "fine" not in reasons
    for number, (name, weight) in enumerate((("x", large), ("z", tiny), ("v", square(3)))):
        expected = feeds[name] @ weight
        assert relative_error(result[:, 64 * number : 64 * (number + 1)], expected) <= 2e-3


def test_positions_are_exact(device) -> None:
    """Positions beyond 2048 are no float16 numbers; nor are floats from which integers are made."""
    nodes = [
        helper.make_node("Cast", ["position"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "step"], ["angle"]),
        helper.make_node("Sin", ["angle"], ["sine"]),
        helper.make_node("Cos", ["angle"], ["cosine"]),
        helper.make_node("Concat", ["sine", "cosine"], ["table"], axis=1),
        helper.make_node("MatMul", ["table", "w"], ["y"]),
    ]
    weights = {"step": np.full((1, 32), 0.5, np.float32), "w": square(1)}
    model = graph(nodes, weights, {"position": [9, 1]}, integers=("position",))
    feeds = {"position": np.arange(4001, 4010, dtype=np.int64)[:, None]}
    with session(model, device) as half_session:
        (result,) = half_session.run(None, feeds)
    (expected,) = reference(model.SerializeToString(), feeds)
    assert relative_error(result, expected) <= 2e-3


def test_on_gpus_masked_attention_leaves_what_follows_in_half_precision() -> None:
    """There one kernel makes weights of the scores that a mask sends far away: means of values are ordinary."""
    path, feeds = MODELS["bert_small"]()
    model = Model(path, cache=False, options={"precision": "float16", "reached": []})
    try:
        shapes = {name: array.shape for name, array in feeds.items()}
        plan = model.compile(shape_key(model.header, shapes, {}), shapes, NATIVE).plan
    finally:
        model.close()
    assert not [row for row in plan.notes.precision.full_precision if "constant beyond" in row.why]
    full = full_plan(path, feeds, NATIVE)
    assert plan.notes.memory.planned_bytes < 0.84 * full.notes.memory.planned_bytes
    assert len(plan.calls) == len(full.calls)
    # the partial sums of products that were split are no tensors of the file; every other activation is a half
    intermediate = [row for row in plan.notes.precision.full_precision if "no tensor of the file" in row.why]
    assert len(intermediate) == 4 and all("output/dense/MatMul" in row.node for row in intermediate)


@pytest.mark.parametrize("size", [1, 7, 65, *slow([3, 17])])
def test_odd_sizes_without_optional_features(size: int, web_device) -> None:
    """Rows that are no whole words: kernels that cannot store them keep float32."""
    generator = np.random.default_rng(size)
    weights = {
        "w": generator.standard_normal((size, size)).astype(np.float32) / np.float32(np.sqrt(size)),
        "scale": generator.uniform(0.5, 2, size).astype(np.float32),
        "bias": generator.standard_normal(size).astype(np.float32),
        "v": generator.standard_normal((size, 2 * size)).astype(np.float32) / np.float32(np.sqrt(size)),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("LayerNormalization", ["a", "scale", "bias"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["r", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "r"], ["o"]),
        helper.make_node("MatMul", ["o", "v"], ["y"]),
    ]
    model = graph(nodes, weights, {"x": [5, size]})
    x = generator.standard_normal((5, size)).astype(np.float32)
    with session(model, web_device) as half_session:
        (result,) = half_session.run(None, {"x": x})
        kernels = half_session.report()["kernels"]
    assert not any(kernel["features"] for kernel in kernels)
    (expected,) = reference(model.SerializeToString(), {"x": x})
    assert relative_error(result, expected) <= TOLERANCE


def test_the_same_inputs_give_the_same_plan(cache_folder, device) -> None:
    feeds = {"x": growing_input(17)}
    keys = set()
    for _ in range(2):
        with shaderloom.InferenceSession(growing_model(), half(), device=device) as half_session:
            half_session.run(None, feeds)
            report = half_session.report()
            keys.add(report["plan_key"])
    assert len(keys) == 1
    assert report["from_disk"]


def test_devices_that_convert_halves_slowly(device) -> None:
    """SwiftShader takes a dozen operations for each: there halves are what a kernel reads some elements of."""
    weights = {"table": square(1, 128), "w": square(2, 128)}
    nodes = [helper.make_node("Gather", ["table", "i"], ["rows"]), helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = graph(nodes, weights, {"i": [4], "x": [4, 128]}, ("rows", "y"), integers=("i",))
    feeds = {"i": np.array([5, 127, 0, 64], np.int64), "x": square(3, 128)[:4]}
    swiftshader = DeviceProfile(kind="cpu", adapter="SwiftShader Device (Subzero)")
    plans = [compile_for(model, feeds, profile, precision="float16") for profile in (swiftshader, device.profile)]
    assert [plan.notes.precision.weights for plan in plans] == [1, 2]
    (row,) = [row for row in plans[0].notes.precision.full_precision if row.tensor == "w"]
    assert "longer to convert halves" in row.why
    for plan in plans:
        rows, found = run_plan(device, plan, model, feeds)
        assert relative_error(rows, weights["table"][feeds["i"]]) <= TOLERANCE
        assert relative_error(found, feeds["x"] @ weights["w"]) <= TOLERANCE


def test_bad_precision() -> None:
    options = shaderloom.SessionOptions()
    with pytest.raises(InputError, match="there is no precision 'int8'"):
        options.precision = "int8"
    with pytest.raises(InputError, match="there is no precision"):
        shaderloom.InferenceSession(growing_model(), options={"precision": "half"}, cache=False)


# -- bundles and the command line --------------------------------------------------------------------------------------


def test_bundles_in_half_precision(tmp_path, device) -> None:
    path, half_path = tmp_path / "full.shaderbundle", tmp_path / "half.shaderbundle"
    model, feeds = growing_model(), {"x": growing_input(17)}
    shapes = [{"x": (17, 64)}]
    full = compile_bundle(model, path, shapes=shapes)
    for target in (half_path, tmp_path / "again.shaderbundle"):
        half_manifest = compile_bundle(
            model, target, shapes=shapes, precision="float16", sample=True, sample_inputs=feeds, device=device
        )
    assert _weight_bytes(half_manifest) < 0.55 * _weight_bytes(full)
    for file in sorted(half_path.rglob("*")):
        if file.is_file():
            again = tmp_path / "again.shaderbundle" / file.relative_to(half_path)
            assert file.read_bytes() == again.read_bytes(), "the same model and inputs give the same bytes"
    (expected,) = reference(model.SerializeToString(), feeds)
    with load_bundle(half_path, device=device) as bundle:
        (result,) = bundle.run(None, feeds)
        assert relative_error(result, expected) <= TOLERANCE
        assert "1.2e+05" in full_precision(bundle.report())["b"]
        assert all(comparison.reason is None for comparison in verify_samples(bundle))


def _weight_bytes(manifest: Manifest) -> int:
    return sum(part.length for parts in manifest.weights.values() for part in parts)


def test_weights_of_bundles_are_those_of_sessions(tmp_path, device) -> None:
    """The host rounds as the device does, but for the last bit of a half."""
    generator = np.random.default_rng(5)
    weight = generator.standard_normal((10, 6, 3, 3)).astype(np.float32) / 7
    scale, shift = generator.uniform(0.5, 2, 10).astype(np.float32), generator.standard_normal(10).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "weight"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "shift", "scale"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    weights = {"weight": weight, "scale": scale, "shift": shift}
    model = graph(nodes, weights, {"x": [1, 6, 9, 11]})
    feeds = {"x": generator.standard_normal((1, 6, 9, 11)).astype(np.float32)}
    compile_bundle(model, tmp_path / "b", precision="float16", sample_inputs=feeds)
    with load_bundle(tmp_path / "b", device=device) as bundle, session(model, device) as half_session:
        (stored,), (computed,) = bundle.run(None, feeds), half_session.run(None, feeds)
    assert relative_error(stored, computed) <= 1e-3
    (expected,) = reference(model.SerializeToString(), feeds)
    assert relative_error(stored, expected) <= 2e-3


def test_the_command_line(tmp_path, device, cache_folder, monkeypatch) -> None:
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    monkeypatch.setenv("COLUMNS", "200")
    path, bundle = tmp_path / "model.onnx", tmp_path / "b.shaderbundle"
    path.write_bytes(growing_model().SerializeToString())
    np.save(tmp_path / "x.npy", growing_input(17))

    def run(*arguments: object) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.output

    given = ("--input", f"x={tmp_path / 'x.npy'}")
    run("run", path, "--f16", *given, "--output", tmp_path / "out.npz")
    (expected,) = reference(path, {"x": growing_input(17)})
    assert relative_error(np.load(tmp_path / "out.npz")["y"], expected) <= TOLERANCE
    text = run("inspect", path, "--f16", "--shape", "x=17x64")
    assert "stay float32" in text and "float16: 2 activations and 2 weights" in text
    run("check", path, "--f16", *given, "--per-node")
    run("compile", path, "-o", bundle, "--f16", "--shape", "x=17x64", *given, "--sample")
    run("verify", bundle)
    assert "1.2e+05" in run("inspect", bundle)
