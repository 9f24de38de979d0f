"""What kernels hold in registers: values that later phases need again, and packed elements until they are used."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.kernels.rows.reduce_config import share
from shaderloom.compiler.target import target_of
from shaderloom.runtime.plan.device_profile import WEB

from ...support.comparison import reference, relative_error
from ...support.kernels import compile_kernels, make_model, run_kernels
from ...support.running import compile_for, run_plan

GPU = replace(WEB, kind="discrete")


def _numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _node(op: str, *names: str, **attributes):
    return helper.make_node(op, list(names[:-1]), [names[-1]], **attributes)


#: name -> nodes, weights of one axis, functions that must be computed once for each element
PROGRAMS = {
    "softmax": ([_node("Softmax", "x", "y", axis=-1)], (), "exp("),
    "log softmax": ([_node("LogSoftmax", "x", "y", axis=-1)], (), None),
    "softmax of a sum": ([_node("Add", "x", "z", "s"), _node("Softmax", "s", "y", axis=-1)], (), "exp("),
    "softmax of columns": ([_node("Softmax", "x", "y", axis=0)], (), "exp("),
    "layer norm": ([_node("LayerNormalization", "x", "w", "b", "y")], ("w", "b"), None),
    "layer norm with residual": (
        [_node("Add", "x", "z", "s"), _node("LayerNormalization", "s", "w", "b", "y")], ("w", "b"), None,
    ),
    "layer norm of nodes with residual": (
        [
            _node("Add", "x", "z", "s"),
            _node("ReduceMean", "s", "axes", "m"),
            _node("Sub", "s", "m", "d"),
            _node("Mul", "d", "d", "p"),
            _node("ReduceMean", "p", "axes", "v"),
            _node("Sqrt", "v", "e"),
            _node("Div", "d", "e", "n"),
            _node("Mul", "n", "w", "g"),
            _node("Add", "g", "b", "y"),
        ],
        ("w", "b"),
        None,
    ),
    "root mean square norm": (
        [
            _node("Mul", "x", "x", "s"),
            _node("ReduceMean", "s", "axes", "m"),
            _node("Sqrt", "m", "r"),
            _node("Div", "x", "r", "n"),
            _node("Mul", "n", "w", "y"),
        ],
        ("w",),
        None,
    ),
}  # fmt: skip


def _program(name: str, shape: tuple[int, int], dtype: type):
    nodes, weights, _ = PROGRAMS[name]
    names = {operand for node in nodes for operand in node.input}
    feeds = {operand: _numbers(*shape, dtype=dtype) * (2 if operand == "x" else 1) for operand in ("x", "z")}
    feeds = {operand: array for operand, array in feeds.items() if operand in names}
    constants = {weight: _numbers(shape[1], dtype=dtype) for weight in weights}
    if "axes" in names:
        constants["axes"] = np.array([-1], np.int64)
    return make_model(nodes, feeds, ["y"], constants=constants), feeds


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3, 256), np.float16),
        ((7, 63), np.float32),
        pytest.param((3, 256), np.float32, marks=pytest.mark.slow),
        pytest.param((64, 8), np.float32, marks=pytest.mark.slow),
    ],
)
def test_rows_keep_what_they_computed(name: str, shape: tuple[int, int], dtype: type, each_device):
    model, feeds = _program(name, shape, dtype)
    found, again = (run_kernels(each_device, model, feeds, kind="discrete").outputs["y"] for _ in range(2))
    (expected,) = reference(model.SerializeToString(), feeds)
    assert relative_error(found, expected) <= (1e-5 if dtype is np.float32 else 2e-3)
    np.testing.assert_array_equal(found, again)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_each_element_is_loaded_once(name: str, dtype: type):
    """The text of a kernel has one load of each activation, and one place for each expensive function."""
    model, feeds = _program(name, (512, 1024), dtype)
    _, made, _ = compile_kernels(model, feeds, GPU)
    ((kernel, _),) = made
    assert kernel.template == "reduce_workgroup"
    assert dict(kernel.config)["steps"] > 0
    functions = kernel.wgsl.split("var<workgroup>")[0]
    for operand in range(len(feeds)):
        assert functions.count(f"x{operand}[") == 1, functions
    once = PROGRAMS[name][2]
    assert once is None or functions.count(once) == 1, functions


def test_special_numbers_spread_as_before(each_device):
    """NaN and infinities in a row make it what they make it in numpy; other rows are not touched."""
    x = _numbers(5, 512)
    x[1, 7], x[2, 100], x[3, :] = np.nan, np.inf, -np.inf
    model = make_model([_node("Softmax", "x", "y", axis=-1)], {"x": x}, ["y"])
    found = run_kernels(each_device, model, {"x": x}, kind="discrete").outputs["y"]
    assert np.isnan(found[1:4]).any(axis=1).all()
    assert np.isfinite(found[[0, 4]]).all()


@pytest.mark.parametrize(
    ("shape", "node"),
    [
        (((65, 64), (64, 72)), _node("MatMul", "x", "w", "p")),
        (((65, 63), (63, 72)), _node("MatMul", "x", "w", "p")),
        (((65, 40), (40, 72)), _node("MatMul", "x", "w", "p")),
        (((1, 16, 9, 9), (32, 16, 3, 3)), _node("Conv", "x", "w", "p", pads=[1, 1, 1, 1])),
    ],
)
def test_halves_stay_packed_until_they_are_used(shape, node, each_device):
    """A load that was issued early is not waited for: unpacking comes after the multiply-adds of the step before."""
    x, w = (_numbers(*size, dtype=np.float16) for size in shape)
    model = make_model([node, _node("Cast", "p", "y", to=1)], {"x": x}, ["y"], constants={"w": w})
    plan = compile_for(model, {"x": x}, replace(each_device.profile, kind="discrete"))
    (found,) = run_plan(each_device, plan, model, {"x": x})
    (expected,) = reference(model.SerializeToString(), {"x": x})
    assert relative_error(found, expected) <= 2e-3
    (text,) = (kernel.wgsl for kernel in plan.kernels if kernel.template == "gemm_shared")
    assert re.search(r"fn load_b\(.*\) -> vec2<u32> ", text)
    assert re.search(r"var next_b_0 = (load|padded)_b\(", text)
    assert "unpack_float16_4(next_b_0)" in text


def test_few_long_rows_get_more_workgroups():
    """The pool of a whole picture: threads share its pixels among workgroups of few channels."""
    rows, strips = share(target_of(GPU), 8, 112 * 112, False)  # 32 channels in fours
    assert (rows, strips) == (1, 256)
    assert share(target_of(GPU), 288, 49, False) == (32, 8)
    rows, strips = share(target_of(GPU), 120, 196, False)
    assert rows * strips == 256 and rows < 32
