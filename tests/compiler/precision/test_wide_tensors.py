"""Tensors that a file declares float16 and that leave its range: finite where a float32 computation is.

Covers: compiler/precision/wide_tensors.py, shaderloom/execution/overflow.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from shaderloom import InferenceSession, SessionOptions
from shaderloom.bundles.compile import compile_bundle
from shaderloom.bundles.session import load_bundle
from shaderloom.cli import app
from shaderloom.compiler.target import target_of
from shaderloom.execution.engine import WgpuEngine
from shaderloom.execution.overflow import is_finite
from shaderloom.runtime.plan.errors import InputError

HALF, SINGLE, COUNT = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT64
ROW = np.array([[0.5, 1.0, 2.0, 3.5]], np.float16)
HIDDEN = np.full((1, 4), -3.4e38, np.float32)


def widened_model(
    nodes: list[NodeProto],
    inputs: Mapping[str, tuple[int, list[int | str]]],
    outputs: Mapping[str, int],
    weights: Mapping[str, np.ndarray] | None = None,
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def growing(*outputs: str, width: int = 4) -> ModelProto:
    """``b`` reaches 3e5; ``y`` is back in the range."""
    grow, shrink = np.eye(width) * 300, np.eye(width) * 1e-3
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a w", "b"), node("MatMul", "b v", "y")]
    weights = {"w": grow.astype(np.float16), "v": shrink.astype(np.float16)}
    return widened_model(nodes, {"x": (HALF, ["n", width])}, dict.fromkeys(("y", *outputs), HALF), weights)


def grown(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) * 300 * 300 * np.float64(np.float16(1e-3))


def softmax(x: np.ndarray) -> np.ndarray:
    exponents = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def opened(model: ModelProto, device: Any, widen: str = "auto", **options: Any) -> InferenceSession:
    settings = SessionOptions()
    settings.widen = widen
    settings.precision = options.pop("precision", "float32")
    options.setdefault("cache", False)
    return InferenceSession(model, settings, device=device, options={"verify": True}, **options)


def close(found: np.ndarray, expected: np.ndarray, roundings: float = 3.0) -> bool:
    return bool(np.abs(found.astype(np.float64) - expected).max() <= roundings * 2.0**-11 * np.abs(expected).max())


@pytest.fixture
def calibrations(monkeypatch) -> list[str]:
    """The calibration runs of a test."""
    seen: list[str] = []
    measure = WgpuEngine.calibrate

    def counted(engine: WgpuEngine, feeds: Any) -> bool:
        seen.append("run")
        return measure(engine, feeds)

    monkeypatch.setattr(WgpuEngine, "calibrate", counted)
    return seen


SUMS = {
    "a sum of two masks": ([node("Add", "q m", "a"), node("Add", "a m", "s")], np.float16(-65504)),
    "a cast of a mask": ([node("Cast", "m", "h", to=HALF), node("Add", "q h", "s")], np.float32(-3.4e38)),
    "a product": ([node("Mul", "o m", "h"), node("Add", "q h", "s")], np.float16(-30000)),
}


@pytest.mark.parametrize("sum_of", SUMS)
def test_masks_of_a_row_that_is_hidden_as_a_whole(device, calibrations, sum_of: str) -> None:
    """The constants say that a sum leaves the range: no run is needed for it."""
    nodes, mask = SUMS[sum_of]
    constants = {"m": np.full((1, 4), mask), "o": np.full((1, 4), 4, np.float16)}
    used = {name for each in nodes for name in each.input}
    weights = {"w": np.eye(4, dtype=np.float16), **{name: constants[name] for name in constants if name in used}}
    ends = [node("MatMul", "x w", "q"), *nodes, node("Softmax", "s", "y")]
    model = widened_model(ends, {"x": (HALF, [1, 4])}, {"y": HALF}, weights)
    with opened(model, device) as session:
        (y,) = session.run(None, {"x": ROW})
        assert session.report()["widened"]
    is_far = float(mask) < -1e38  # nothing is left of the scores
    assert close(y, np.full((1, 4), 0.25) if is_far else softmax(ROW)) and not calibrations
    with opened(model, device, widen="off") as session:
        assert np.isnan(session.run(None, {"x": ROW})[0]).all()


def test_rows_of_a_table_of_masks(device, calibrations) -> None:
    sums = [node("MatMul", "x w", "q"), node("Gather", "m i", "h"), node("Add", "q h", "a"), node("Add", "a h", "s")]
    weights = {"w": np.eye(4, dtype=np.float16), "m": np.repeat(np.float16([[0], [-65504]]), 4, 1)}
    inputs = {"x": (HALF, [1, 4]), "i": (COUNT, [1])}
    model = widened_model([*sums, node("Softmax", "s", "y")], inputs, {"y": HALF}, weights)
    with opened(model, device) as session:
        for row in range(2):
            assert close(session.run(None, {"x": ROW, "i": np.array([row])})[0], softmax(ROW))
    assert not calibrations


def test_a_bound_and_a_divisor_widen_nothing(device) -> None:
    """Exporters clip at the largest half: that carries nothing beyond it."""
    weights = {"l": np.float16(-65504), "h": np.float16(65504), "w": np.eye(4, dtype=np.float16)}
    nodes = [
        node("MatMul", "x w", "a"),
        node("Clip", "a l h", "b"),
        node("Div", "b h", "c"),
        node("MatMul", "c w", "y"),
    ]
    with opened(widened_model(nodes, {"x": (HALF, [1, 4])}, {"y": HALF}, weights), device) as session:
        session.run(None, {"x": ROW})
        assert "widened" not in session.report()


def test_a_tensor_that_grows_is_measured_once(each_device, calibrations) -> None:
    """Where the device takes long to convert halves, it is float32 whatever it reaches."""
    x = np.concatenate([ROW, -ROW])
    stores_halves = target_of(each_device.profile).converts_halves
    with opened(growing(), each_device) as session:
        for _ in range(3):
            assert close(session.run(None, {"x": x})[0], grown(x))
        assert len(calibrations) == stores_halves and session.stats.misses == 1 + stores_halves
        widened = session.report().get("widened", [])
        assert [row["tensor"] for row in widened] == ["b"] * stores_halves
        assert all("3.2e+05" in row["why"] for row in widened)
        other = np.concatenate([ROW, ROW, ROW])  # another shape: what was measured counts for it, too
        assert close(session.run(None, {"x": other})[0], grown(other)) and len(calibrations) == stores_halves
    with opened(growing(), each_device, widen="off") as session:
        assert np.isnan(session.run(None, {"x": x})[0]).any() == stores_halves
        with pytest.raises(InputError, match="widen"):
            session.calibrate({"x": x})


def test_the_next_process_remembers(device, calibrations, tmp_path) -> None:
    for _ in range(2):
        with opened(growing(), device, cache=tmp_path) as session:
            assert close(session.run(None, {"x": ROW})[0], grown(ROW))
    assert len(calibrations) == 1 and session.stats.misses == 1 and session.stats.disk_hits == 1


def test_an_output_beyond_the_range_is_infinite(device, calibrations) -> None:
    """Its type says so: one measurement, and none again for outputs of the kind."""
    with opened(growing("b"), device) as session:
        for _ in range(3):
            y, b = session.run(None, {"x": ROW})
            assert np.isinf(b).any() and close(y, grown(ROW))
        assert len(calibrations) == 1 and session.stats.misses == 2


def test_inputs_that_are_no_numbers_call_for_nothing(device, calibrations) -> None:
    with opened(growing(), device) as session:
        assert np.isnan(session.run(None, {"x": ROW * np.float16(np.nan)})[0]).all()
        assert not calibrations
        # an input of the mask's minus infinity is ordinary
        x = np.concatenate([ROW, np.full_like(ROW, -np.inf)])
        assert close(session.run(None, {"x": x})[0][:1], grown(ROW)) and calibrations


@pytest.mark.parametrize("outputs", [("y",), ("y", "h")])
def test_a_cast_rounds_where_it_is_stored(device, outputs: tuple[str, ...]) -> None:
    """Inside a kernel no run can see what it reaches."""
    nodes = [node("Cast", "m", "h", to=HALF), node("Add", "h x", "a"), node("Softmax", "a", "y")]
    model = widened_model(nodes, {"m": (SINGLE, [1, 4]), "x": (HALF, [1, 4])}, dict.fromkeys(outputs, HALF))
    with opened(model, device) as session:
        y, *rest = session.run(None, {"m": HIDDEN, "x": ROW})
    assert close(y, np.full((1, 4), 0.25))
    assert all(np.isneginf(array).all() for array in rest)


def test_half_precision_that_was_calibrated_without_a_mask(device) -> None:
    """The mask would be minus infinity as a half, and a row that it hides as a whole NaN."""
    nodes = [node("Add", "m u", "a"), node("MatMul", "x w", "s"), node("Add", "s a", "b"), node("Softmax", "b", "y")]
    nodes.append(node("ReduceMax", "a", "t", axes=[1], keepdims=1))
    weights = {"w": np.eye(4, dtype=np.float32), "u": np.ones((8, 4), np.float32)}
    model = widened_model(nodes, {"m": (SINGLE, [8, 4]), "x": (SINGLE, [8, 4])}, {"y": SINGLE, "t": SINGLE}, weights)
    x, open_mask = np.tile(ROW.astype(np.float32), (8, 1)), np.zeros((8, 4), np.float32)
    hidden = open_mask.copy()
    hidden[3] = -3.4e38
    with opened(model, device, precision="float16") as session:
        session.run(None, {"x": x, "m": open_mask})
        y, _ = session.run(None, {"x": x, "m": hidden})
    assert np.isfinite(y).all()
    np.testing.assert_allclose(y[3], 0.25, atol=2e-3)
    np.testing.assert_allclose(y[0], softmax(x)[0], atol=4e-3)


def test_a_program_of_several_steps(device, calibrations) -> None:
    model = growing()
    model.graph.node.extend([node("NonZero", "x", "i"), node("Shape", "i", "k")])
    model.graph.output.append(helper.make_tensor_value_info("k", COUNT, None))
    with opened(model, device) as session:
        for _ in range(2):
            y, k = session.run(None, {"x": ROW})
            assert close(y, grown(ROW)) and list(k) == [2, 4]
        assert len(calibrations) == 1


@pytest.mark.parametrize("measured", [False, True])
def test_bundles_carry_what_inputs_reach(device, tmp_path, measured: bool) -> None:
    path = tmp_path / "growing.shaderbundle"
    given = {"x": ROW} if measured else None
    compile_bundle(growing(), path, shapes=[{"x": (1, 4)}], target="native", sample_inputs=given)
    with load_bundle(path, device=device) as session:
        (y,) = session.run(None, {"x": ROW})
    assert close(y, grown(ROW)) if measured else np.isnan(y).any()


def test_commands(tmp_path: Path) -> None:
    model, x = tmp_path / "m.onnx", tmp_path / "x.npy"
    model.write_bytes(growing().SerializeToString())
    np.save(x, ROW)
    run = ["run", str(model), "--input", f"x={x}", "--no-cache"]
    runner = CliRunner()
    assert "not finite" not in runner.invoke(app, run).output
    assert "not finite" in runner.invoke(app, [*run, "--widen", "off"]).output
    shown = runner.invoke(app, ["inspect", str(model), "--show", "placement", "--input", f"x={x}"]).output
    assert "tensors that the model declares float16 are float32" in shown
    refused = runner.invoke(
        app, ["compile", str(model), "-o", str(tmp_path / "b"), "--widen", "off", "--shape", "x=1x4"]
    )
    assert refused.exit_code == 0, refused.output
    assert runner.invoke(app, ["run", str(tmp_path / "b"), "--widen", "off"]).exit_code == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_finite_arrays(dtype: type) -> None:
    array = np.full((3, 70_000), np.finfo(dtype).max, dtype)
    array[1, 5] = np.finfo(dtype).smallest_subnormal
    assert is_finite(array) and is_finite(array[:0]) and is_finite(array[:, ::7])
    for bad in (np.nan, np.inf, -np.inf):
        array[2, 69_999] = bad
        assert not is_finite(array) and not is_finite(array[:, 69_999:])
    assert is_finite(np.array([7]))
