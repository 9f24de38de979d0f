"""Models of 16-bit floats under ``check``: the right one is not blamed, a fault is found, an overflow is named.

Covers: shaderloom/check/half_evaluator.py, shaderloom/check/comparison.py, shaderloom/check/expectations.py,
shaderloom/check/diagnosis, shaderloom/check/local_check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from shaderloom.check.check import Checker
from shaderloom.check.comparison import compare
from shaderloom.check.half_evaluator import HalfEvaluator
from shaderloom.check.onnx_model import OnnxModel
from shaderloom.check.references import open_reference
from shaderloom.check.run_check import CheckResult
from shaderloom.model.model import Model

from .test_check import plant_in_template

HALF, SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT
AGAINST = ["onnxruntime", "reference"]


def half_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    weights: Mapping[str, np.ndarray],
    kind: int = HALF,
    **more: Any,
) -> ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "halves",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", more.pop("output", kind), None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


@pytest.fixture
def check(device, tmp_path):
    def run(
        model: ModelProto,
        feeds: Mapping[str, np.ndarray],
        against: str = "onnxruntime",
        dynamic: Any = None,
        **options: Any,
    ) -> CheckResult:
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        source = OnnxModel(path)
        opened = Model(path, cache=False, options=options, dynamic=dynamic)
        with Checker(opened, source, open_reference(against, source), device, feeds) as checker:
            return checker.run(per_node=True)

    return run


def image_model(sizes: Sequence[int | str]) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The sum of 9,216 elements of about 20 is far beyond float16."""
    generator = np.random.default_rng(0)
    weights = {
        "v": (generator.standard_normal((8, 3, 3, 3)) * 0.2).astype(np.float16),
        "w": (generator.standard_normal((4, 8, 1, 1)) * 0.1).astype(np.float16),
    }
    nodes = [node("Conv", "x v", "a", pads=[1, 1, 1, 1]), node("GlobalAveragePool", "a", "b"), node("Conv", "b w", "y")]
    x = np.abs(generator.standard_normal((1, 3, 96, 96)) * 20).astype(np.float16)
    return half_model(nodes, {"x": [1, 3, *sizes]}, weights), {"x": x}


def token_model(rows: int, size: int | str) -> tuple[ModelProto, dict[str, np.ndarray]]:
    generator = np.random.default_rng(1)
    nodes = [node("ReduceMean", "x", "a", axes=[1], keepdims=0), node("MatMul", "a w", "y")]
    x = (generator.standard_normal((1, rows, 16)) * 5 + 30).astype(np.float16)
    w = (generator.standard_normal((16, 8)) * 0.1).astype(np.float16)
    return half_model(nodes, {"x": [1, size, 16]}, {"w": w}), {"x": x}


@pytest.mark.parametrize("against", AGAINST)
@pytest.mark.parametrize("dynamic", [None, {"h": (1, 512), "w": (1, 512)}], ids=["static", "declared"])
def test_a_right_model_of_images_is_not_blamed(check, against: str, dynamic: Any) -> None:
    model, feeds = image_model([96, 96] if dynamic is None else ["h", "w"])
    result = check(model, feeds, against, dynamic)
    assert result.is_close, result.diagnosis


@pytest.mark.parametrize("against", AGAINST)
@pytest.mark.parametrize("rows", [2048, 90_001])
@pytest.mark.parametrize("dynamic", [None, {"n": (1, 100_000)}], ids=["static", "declared"])
def test_a_right_model_of_tokens_is_not_blamed(check, against: str, rows: int, dynamic: Any) -> None:
    """Beyond 65,519 rows the count is no half."""
    model, feeds = token_model(rows, rows if dynamic is None else "n")
    result = check(model, feeds, against, dynamic)
    assert result.is_close, result.diagnosis


@pytest.mark.parametrize("against", AGAINST)
@pytest.mark.parametrize("dynamic", [None, {"n": (1, 100_000)}], ids=["static", "declared"])
def test_a_planted_fault_is_found(check, monkeypatch, against: str, dynamic: Any) -> None:
    """A mean that leaves out its last row is off by a fiftieth at 50 rows."""
    columns = 'let columns = {{ dim("columns") }}'
    template = "reduce_serial" if dynamic is None else "reduce_workgroup"
    plant_in_template(monkeypatch, f"reduce/{template}.wgsl.j2", columns, f"{columns} - 1")
    model, feeds = token_model(50, 50 if dynamic is None else "n")
    result = check(model, feeds, against, dynamic)
    assert not result.is_close
    assert (result.diagnosis.kind, result.diagnosis.node) == ("kernel", "ReduceMean (main node 0)")


@pytest.mark.parametrize("against", AGAINST)
def test_a_difference_of_rounded_tensors_is_not_blamed(check, against: str) -> None:
    """Of 1,000.37 and its neighbours rounding leaves nothing but rounding: the file rounds, a kernel does not."""
    nodes = [node("Mul", "x k", "a"), node("Add", "a c", "b"), node("Sub", "b c", "d"), node("Mul", "d k", "y")]
    weights = {"k": np.array(0.37, np.float16), "c": np.array(1000, np.float16)}
    x = np.random.default_rng(2).standard_normal((4, 16)).astype(np.float16)
    result = check(half_model(nodes, {"x": [4, 16]}, weights), {"x": x}, against)
    assert result.is_close, result.diagnosis


@pytest.mark.parametrize("against", AGAINST)
def test_a_tensor_that_overflows_is_named_with_a_remedy(check, against: str) -> None:
    weights = {"w": np.eye(4, dtype=np.float16) * np.float16(300), "v": np.eye(4, dtype=np.float16) * np.float16(1e-3)}
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a w", "b"), node("MatMul", "b v", "y")]
    model, feeds = half_model(nodes, {"x": [2, 4]}, weights), {"x": np.ones((2, 4), np.float16)}
    assert check(model, feeds, against).is_close
    diagnosis = check(model, feeds, against, widen="off").diagnosis
    assert (diagnosis.kind, diagnosis.node) == ("overflow", "MatMul (main node 1)")
    assert "'b'" in diagnosis.findings[0] and "widen = 'auto'" in diagnosis.findings[0]


@pytest.mark.slow
@pytest.mark.parametrize("against", AGAINST)
def test_a_tensor_that_overflows_between_stages(check, against: str) -> None:
    nodes = [node("Mul", "x x", "a"), node("Mul", "a a", "b"), node("NonZero", "b", "i"), node("Transpose", "i", "j")]
    nodes += [node("GatherND", "b j", "p"), node("Mul", "p k", "y")]
    model = half_model(nodes, {"x": [4]}, {"k": np.array(1e-3, np.float16)})
    result = check(model, {"x": np.array([4, 0, 16, 28], np.float16)}, against)
    assert result.is_close, result.diagnosis
    assert any(row.tensor == "b" for row in result.rows)


def test_the_evaluator_computes_halves_in_float32() -> None:
    x = np.full((1, 90_001), 30, np.float16)
    model = half_model([node("ReduceSum", "x axes", "s"), node("Mul", "s k", "y")], {"x": [1, 90_001]}, {})
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(2.0**-10, np.float16), "k"))
    (y,) = HalfEvaluator(model).run({"x": x})
    assert y.dtype == np.float16 and y == np.float16(90_001 * 30 / 1024)  # the sum stays finite
    rounded, exact = (HalfEvaluator(model, rounds=rounds).run({"x": x[:, :777]})[0] for rounds in (True, False))
    assert rounded == np.float16(np.float16(777 * 30) * 2.0**-10) and exact == np.float16(777 * 30 / 1024)


@pytest.mark.parametrize(("kind", "dtype"), [(HALF, np.float16), (TensorProto.BFLOAT16, ml_dtypes.bfloat16)])
def test_the_evaluator_keeps_declared_types(kind: int, dtype: Any) -> None:
    """Through bodies of loops, casts, bits and constants."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("Add", "carried x", "next"),
            node("Identity", "going", "still"),
            node("Cast", "carried", "row", to=SINGLE),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("going", TensorProto.BOOL, []), info("carried", kind, None)],
        [info("still", TensorProto.BOOL, []), info("next", kind, None), info("row", SINGLE, None)],
    )
    nodes = [
        helper.make_node("Loop", ["count", "true", "x"], ["sum", "rows"], body=body),
        node("Mul", "sum k", "scaled"),
        node("CastLike", "rows x", "like"),
        node("ReduceMax", "like", "most", axes=[0], keepdims=0),
        node("Add", "scaled most", "y"),
    ]
    model = half_model(
        nodes, {"x": [5]}, {"count": np.array(3), "true": np.array(True), "k": np.array(0.5).astype(dtype)}, kind
    )
    x = np.arange(5).astype(dtype)
    (y,) = HalfEvaluator(model).run({"x": x})
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(np.float32), np.arange(5) * (4 * 0.5 + 3))


def test_infinity_is_what_lies_beyond_the_last_step() -> None:
    expected = np.array([np.inf, -np.inf, 1.0], np.float16)
    assert compare(np.array([65_530, -1e9, 1.0], np.float32), expected).is_close
    assert compare(np.array([65_504, -65_504, 1.0], np.float16), expected).is_close
    assert not compare(np.array([65_000, -1e9, 1.0], np.float32), expected).is_close
    assert not compare(np.array([-1e9, 1e9, 1.0], np.float32), expected).is_close
    assert not compare(np.array([np.nan, -1e9, 1.0], np.float32), expected).is_close
