"""Tensors beyond the limits of a device: what reads them in parts, and the numbers.

Covers: compiler/passes/large_tensors.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.compiler.remarks import Remark
from shaderloom.runtime.execution.requirements import requirements
from shaderloom.runtime.plan.device_profile import WEB
from shaderloom.runtime.plan.errors import DeviceLimitError
from shaderloom.runtime.plan.plan import Plan

from ...support.comparison import reference, relative_error
from ...support.kernels import make_model
from ...support.large_weights import BINDING, RNG, Model, bytes_of, floats, indices, limited, made, packed, tied
from ...support.passes import lower_model
from ...support.running import compile_for, run_plan

node = helper.make_node


def dequantised(shape: tuple[int, int], axis: int, *, block: int = 0, transposed: bool = False) -> Model:
    """A product with a matrix of bytes, with a scale for each column or for blocks of terms."""
    scales = list(shape)
    scales[axis] = -(-shape[axis] // block) if block else shape[axis]
    count = tuple(scales) if block else (shape[axis],)
    constants = {"q": bytes_of(*shape, dtype="int8"), "s": floats(*count) / 64, "z": bytes_of(*count, dtype="int8")}
    nodes = [node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis, block_size=block)]
    if transposed:
        nodes.append(node("Transpose", ["w"], ["t"]))
    nodes.append(node("MatMul", ["x", "t" if transposed else "w"], ["y"]))
    return made(nodes, {"x": floats(3, shape[1 if transposed else 0])}, **constants)


def codes(shape: tuple[int, int], axis: int, block: int, *use: onnx.NodeProto, dtype: str = "int4") -> Model:
    """A matrix ``w`` of codes narrower than a byte with scales and zeros of blocks, and what is computed of it."""
    count = tuple(-(-size // block) if at == axis else size for at, size in enumerate(shape))
    info = ml_dtypes.iinfo(dtype)
    drawn = (RNG.integers(info.min, info.max + 1, size).astype(dtype) for size in (shape, count))
    constants = {**dict(zip("qz", drawn)), "s": floats(*count) / 8}
    nodes = [node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis, block_size=block), *use]
    read = {name for each in use for name in each.input}
    feeds = {"x": floats(1, shape[axis])} if "x" in read else {"i": indices(shape[0], 2)}
    return made(nodes, feeds, **constants)


TRANSPOSED = node("Transpose", ["w"], ["t"])
TIED = (node("Gather", ["w", "i"], ["e"]), TRANSPOSED, node("MatMul", ["e", "t"], ["y"]))


#: Models and the limit of a binding that each exceeds
CASES = {
    "gather": (
        lambda: made([node("Gather", ["w", "i"], ["y"])], {"i": indices(701, 3, 4)}, w=floats(701, 17)), 1 << 13),
    "gather one row": (
        lambda: made([node("Gather", ["w", "i"], ["y"])], {"i": np.array(-700)}, w=floats(701, 3, 5)), 1 << 14),
    "gather known rows": (
        lambda: made([node("Gather", ["w", "i"], ["g"]), node("Mul", ["g", "x"], ["y"])], {"x": floats(3, 17)},
                     w=floats(1701, 17), i=np.array([0, 1699, -5])), 1 << 14),
    "gather columns": (
        lambda: made([node("Gather", ["w", "i"], ["y"], axis=1)], {"i": indices(64, 2)}, w=floats(501, 64)), 1 << 15),
    "columns": (
        lambda: made([node("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5)], {"x": floats(5, 39)},
                     w=floats(703, 39), b=floats(703)), 1 << 14),
    "one row": (
        lambda: made([node("Gemm", ["x", "w"], ["y"], transB=1)], {"x": floats(1, 36)}, w=floats(1027, 36)), 1 << 15),
    "terms": (lambda: made([node("MatMul", ["x", "w"], ["y"])], {"x": floats(2, 701)}, w=floats(701, 33)), 1 << 13),
    "batches": (
        lambda: made([node("MatMul", ["x", "w"], ["y"])], {"x": floats(6, 5, 24)}, w=floats(6, 24, 33)), 1 << 13),
    "left": (lambda: made([node("MatMul", ["w", "x"], ["y"])], {"x": floats(24, 5)}, w=floats(501, 24)), 1 << 14),
    "tied": (lambda: tied(1003), 1 << 15),
    "tied halves": (lambda: tied(1003, dtype="float16"), 1 << 14),
    "packed": (lambda: packed(1003), 1 << 13),
    "packed with zeros": (lambda: packed(999, zeros=True), 1 << 13),
    "packed bytes": (lambda: packed(501, bits=8, zeros=True), 1 << 14),
    "bytes a column": (lambda: dequantised((40, 1003), 1), 1 << 14),
    "bytes a column, transposed": (lambda: dequantised((1003, 40), 0, transposed=True), 1 << 14),
    "bytes in blocks": (lambda: dequantised((1003, 64), 1, block=32, transposed=True), 1 << 14),
    "codes in blocks of terms": (lambda: codes((64, 2006), 0, 32, node("MatMul", ["x", "w"], ["y"])), 1 << 15),
    "parts within blocks of terms": (lambda: codes((64, 2006), 0, 32, node("MatMul", ["x", "w"], ["y"])), 20_000),
    "bytes of two rows": (
        lambda: codes((63, 2007), 0, 21, node("MatMul", ["x", "w"], ["y"]), dtype="uint4"), 20_000),
    "scales beyond a binding": (lambda: codes((2008, 63), 0, 8, node("MatMul", ["x", "w"], ["y"])), 20_000),
    "codes in blocks of rows": (
        lambda: codes((2006, 64), 1, 32, TRANSPOSED, node("MatMul", ["x", "t"], ["y"])), 16_000),
    "tied codes": (lambda: codes((2006, 64), 1, 32, *TIED, dtype="uint4"), 20_000),
    "tied codes of odd rows": (lambda: codes((2007, 63), 1, 21, *TIED), 20_000),
    "rows of codes": (lambda: codes((2006, 64), 1, 32, node("Gather", ["w", "i"], ["y"])), 20_000),
    "convolution": (
        lambda: made([node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])], {"x": floats(1, 8, 4, 5)},
                     w=floats(202, 8, 3, 3), b=floats(202)), 1 << 14),
    "maximum": (
        lambda: made([node("ReduceMax", ["w", "a"], ["m"], keepdims=0), node("Mul", ["x", "m"], ["y"])],
                     {"x": floats(2, 33)}, w=floats(701, 33), a=np.array([0])), 1 << 13),
    "mean of rows": (
        lambda: made([node("ReduceMean", ["w", "a"], ["m"], keepdims=0), node("Mul", ["x", "m"], ["y"])],
                     {"x": floats(2, 701)}, w=floats(701, 33), a=np.array([1])), 1 << 13),
    "rounded": (
        lambda: made([node("Cast", ["w"], ["c"], to=onnx.TensorProto.INT8), node("Gather", ["c", "i"], ["y"])],
                     {"i": indices(701, 9)}, w=floats(701, 33) * 9), 1 << 13),
}  # fmt: skip


def largest(plan: Plan) -> int:
    """Bytes of the largest binding of a plan, those of the calls that make its weights and their sources included."""
    made_of = [span.size for weight in plan.weights for call in weight.calls for span in call.ranges]
    return max([requirements(plan)[BINDING], *made_of, *(weight.bytes for weight in plan.weights)])


#: The cases of the quick tier
QUICK = frozenset(
    {
        "bytes of two rows",
        "gather",
        "columns",
        "terms",
        "tied halves",
        "packed with zeros",
        "bytes a column",
        "rounded",
    }
)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CASES])
def test_large_constants_are_read_in_parts(each_device, name: str):
    build, limit = CASES[name]
    model, feeds = build()
    profile = limited(each_device.profile, limit)
    assert largest(compile_for(model, feeds, each_device.profile)) > limit
    plan = compile_for(model, feeds, profile)
    assert largest(plan) <= limit
    (found,) = run_plan(each_device, plan, model, feeds)
    (expected,) = reference(model, feeds)
    assert relative_error(found, expected) <= (2e-3 if expected.dtype == np.float16 else 2e-5)


@pytest.mark.parametrize("dtype", ["int4", "uint2", "float8_e4m3fn", "float4_e2m1fn"])
def test_rows_of_codes_are_chosen_from_parts(device, dtype: str):
    """Types that no operator computes with; onnxruntime has no Gather of some of them."""
    drawn = RNG.integers(0, 4, (2006, 64)).astype(dtype)
    model, feeds = made([node("Gather", ["q", "i"], ["y"])], {"i": indices(2006, 3)}, q=drawn)
    model.opset_import[0].version, model.ir_version = 25, 13
    plan = compile_for(model, feeds, limited(device.profile, 20_000))
    assert largest(plan) <= 20_000
    (found,) = run_plan(device, plan, model, feeds)
    np.testing.assert_array_equal(found.astype(np.float32), drawn[feeds["i"]].astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [5, 64, 65, 127, 128, 129, 255, 257, 511, 513, 1025])
@pytest.mark.parametrize("limit", [5_000, 1 << 13, 12_000, 40_000])
@pytest.mark.parametrize("build", [tied, packed], ids=["floats", "codes"])
def test_any_number_of_rows(each_device, build, rows: int, limit: int):
    model, feeds = build(rows, 1)
    plan = compile_for(model, feeds, limited(each_device.profile, limit))
    assert largest(plan) <= limit
    (found,) = run_plan(each_device, plan, model, feeds)
    assert relative_error(found, reference(model, feeds)[0]) <= 2e-5


@pytest.mark.parametrize("build", [tied, packed], ids=["floats", "codes"])
def test_a_tied_embedding_shares_its_parts(device, build):
    model, feeds = build(1003)
    whole = compile_for(model, feeds, device.profile)
    plan = compile_for(model, feeds, limited(device.profile, 1 << 15))
    total = sum(weight.bytes for weight in plan.weights)
    assert total <= 1.02 * sum(weight.bytes for weight in whole.weights)


def test_indices_out_of_range_are_clamped_as_without_parts(device):
    model, feeds = made(
        [node("Gather", ["w", "i"], ["y"])], {"i": np.array([-5000, 5000, -702, 701])}, w=floats(701, 17)
    )
    whole, parts = (compile_for(model, feeds, limited(device.profile, limit)) for limit in (1 << 20, 1 << 13))
    np.testing.assert_array_equal(*(run_plan(device, plan, model, feeds)[0] for plan in (whole, parts)))


def test_plans_for_many_sizes_read_parts(device):
    """The rows of the activation are declared dynamic."""
    nodes = [node("Gather", ["w", "i"], ["e"]), node("Gemm", ["e", "w", "b"], ["y"], transB=1)]
    model = make_model(nodes, {"i": indices(1003, 7)}, ["y"], constants={"w": floats(1003, 36), "b": floats(1003)},
                       dims={"i": ("n",)})  # fmt: skip
    feeds = [{"i": indices(1003, rows)} for rows in (1, 3, 8)]
    plan = compile_for(model, feeds[0], limited(device.profile, 1 << 15), dynamic={"n": (1, 8)})
    assert largest(plan) <= 1 << 15
    for fed, (found,) in zip(feeds, run_plan(device, plan, model, feeds), strict=True):
        assert relative_error(found, reference(model, fed)[0]) <= 2e-5


def test_half_precision_reads_the_constants_in_parts(device):
    """A float32 constant is converted on the device, part by part."""
    model, feeds = tied(1003)
    plan = compile_for(model, feeds, limited(device.profile, 1 << 15), precision="float16")
    assert largest(plan) <= 1 << 15
    (found,) = run_plan(device, plan, model, feeds)
    assert relative_error(found, reference(model, feeds)[0]) <= 2e-3


@pytest.mark.parametrize("kind", ["floats", "halves", "codes", "heads"])
def test_a_softmax_before_a_product_with_a_large_constant(device, kind: str):
    """GPUs compute both in one kernel, which loads all rows of the constant."""
    dtype = "float16" if kind == "halves" else "float32"
    heads = (4,) if kind == "heads" else ()
    nodes = [node("Softmax", ["x"], ["p"], axis=-1), node("MatMul", ["p", "w"], ["y"])]
    constants = {"w": floats(*heads, 803, 40, dtype=dtype)}
    if kind == "codes":
        nodes.insert(0, node("DequantizeLinear", ["q", "s"], ["w"], axis=1))
        constants = {"q": bytes_of(1803, 40, dtype="int8"), "s": floats(40)}
    rows = 1803 if kind == "codes" else 803
    model, feeds = made(nodes, {"x": floats(*heads, 3, rows, dtype=dtype)}, **constants)
    limit = 1 << (17 if heads else 15)
    whole = compile_for(model, feeds, WEB)
    assert {"Softmax", "MatMul"} <= {origin.split()[0] for origin in whole.calls[0].origins}
    assert largest(whole) > limit
    plan = compile_for(model, feeds, limited(WEB, limit, 1 << 20))
    assert largest(plan) <= limit
    (found,) = run_plan(device, plan, model, feeds)
    assert relative_error(found, reference(model, feeds)[0]) <= (2e-3 if kind == "halves" else 2e-5)


def test_products_of_parts_do_not_join_beyond_a_binding(device):
    """Each weight can be bound, all of them side by side cannot."""
    feeds = {"x": floats(3, 64)}
    constants = {f"w{number}": floats(64, 64) for number in range(3)}
    nodes = [node("MatMul", ["x", name], [f"p{name}"]) for name in constants]
    nodes += [node("Reshape", [f"p{name}", "s"], [f"v{name}"]) for name in constants]
    nodes.append(node("Concat", [f"v{name}" for name in constants], ["y"], axis=0))
    model, feeds = made(nodes, feeds, s=np.array([-1]), **constants)
    remarks: list[Remark] = []
    lower_model(model, {"x": (3, 64)}, limited(device.profile, 40_000), remarks=remarks)
    assert "the weight of all would be larger than a binding" in [each.refused for each in remarks]
    plan = compile_for(model, feeds, limited(device.profile, 40_000))
    assert largest(plan) <= 40_000


def test_what_has_no_rule_is_refused_by_name(device):
    model, feeds = made([node("CumSum", ["w", "a"], ["c"]), node("Gather", ["c", "i"], ["y"])],
                        {"i": indices(701, 3)}, w=floats(701, 33), a=np.array(0))  # fmt: skip
    with pytest.raises(DeviceLimitError, match=f"the tensor takes 92,544 bytes.*{BINDING} is 8,192") as caught:
        compile_for(model, feeds, limited(device.profile, 1 << 13))
    assert caught.value.tensor == "c"
