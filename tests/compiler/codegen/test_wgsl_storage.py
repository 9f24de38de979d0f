"""Loads and stores in WGSL: packed types, indices, guards that differ by lane; golden map kernels.

Covers: compiler/codegen/emitter, compiler/codegen/writer, compiler/codegen/render.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from shaderloom.compiler.codegen.emitter import Emitter
from shaderloom.compiler.codegen.render import render
from shaderloom.compiler.codegen.spec import BoundTensor, Hook, KernelSpec, Store
from shaderloom.compiler.codegen.writer import Functions
from shaderloom.compiler.kernels.map import MapConfig
from shaderloom.compiler.symbolic import expr as ex
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic.lanes import is_aligned, lane_variable, split_lane
from shaderloom.runtime.plan.device_profile import WEB
from shaderloom.runtime.plan.dtypes import BY_NAME, compute_dtype, from_border
from shaderloom.runtime.plan.errors import LimitError

from ...support.golden import check_golden
from ...support.kernels import compile_kernels, make_model
from ...support.wgsl import FLOATS, PACKED, both_forms, evaluate, quiet, unary

# -- packed storage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 63, 256])
def test_packed_round_trip(name, count, each_device):
    dtype = compute_dtype(BY_NAME[name])
    if name == "bool":
        values = np.arange(count) % 3 == 0
    elif BY_NAME[name].is_float:
        values = quiet(lambda: np.resize(FLOATS, count).astype(dtype))
    else:
        values = np.linspace(*BY_NAME[name].integer_range, count).astype(np.int32).astype(dtype)
    found = from_border(evaluate(each_device, lambda x: x, [values], name, 4), BY_NAME[name])
    np.testing.assert_array_equal(found.astype(np.float64), values.astype(np.float64))


@pytest.mark.parametrize("name", PACKED)
def test_unpacking_one_element(name, each_device):
    dtype = compute_dtype(BY_NAME[name])
    if BY_NAME[name].is_float:
        values = quiet(lambda: np.resize(FLOATS, 27).astype(dtype))
    else:
        values = from_border(
            (np.arange(27) * 9973 % 65536).astype(np.uint16).view(np.int16).astype(dtype), BY_NAME[name]
        )
    wide = {"f32": "float32", "i32": "int32", "u32": "uint32", "bool": "int32"}[BY_NAME[name].compute]
    found = both_forms(each_device, lambda x: x, [values], wide)
    np.testing.assert_array_equal(found, values.astype(wide))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halves_round_to_nearest_even(name, each_device):
    values = np.array([1.0, 1.00048828125, 1.0009765625, 1.00390625, 1.01171875, 3.14159, -2.71828, 65504.0, 1e-3, 0.1,
                       65519.0, 65520.0, -65520.0, 1e6, np.inf, -np.inf, np.nan], np.float32)  # fmt: skip
    found = evaluate(each_device, lambda x: x, [values], name, 4)
    expected = quiet(lambda: values.astype(compute_dtype(BY_NAME[name])))
    step = 2.0**-10 if name == "float16" else 0.0  # WGSL lets packing to f16 round either way
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=step)


@pytest.mark.parametrize("lanes", [1, 4])
def test_all_halves_are_unpacked_by_bits(lanes, each_device):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    found = evaluate(each_device, lambda x: x, [halves], "float32", lanes, ("unpack_float16",))
    np.testing.assert_array_equal(found.view(np.uint32) >> 31, halves.view(np.uint16) >> 15)
    np.testing.assert_array_equal(found, halves.astype(np.float32))


def _around_halves() -> np.ndarray:
    """All halves as float32, ties between them, and their neighbours; numbers beyond float16, NaN, subnormal floats."""
    halves = np.arange(1 << 15, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[:-1] + halves[1:]) / 2
    beyond = np.array([65519.99, 65520.0, 1e9, 3.4e38, 1e-40, 1e-8, 2.9802322e-08, 2.9802326e-08], np.float32)
    numbers = np.concatenate([halves, ties, np.nextafter(ties, 0), np.nextafter(ties, np.float32(np.inf)), beyond])
    return np.concatenate([numbers, -numbers])


def test_halves_are_packed_by_bits_to_the_nearest_even(each_device):
    values = quiet(_around_halves)
    found = evaluate(each_device, lambda x: x, [values], "float16", 4, ("pack_float16",))
    np.testing.assert_array_equal(found, quiet(lambda: values.astype(np.float16)))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(values))


@pytest.mark.parametrize("lanes", [1, 4])
def test_rounding_by_bits_to_the_nearest_even_half(lanes, each_device):
    values = quiet(_around_halves)
    found = evaluate(each_device, unary("round_float16"), [values], "float32", lanes, ("round_float16",))
    np.testing.assert_array_equal(found, quiet(lambda: values.astype(np.float16).astype(np.float32)))


def test_packed_stores_need_whole_words():
    position = ix.variable("q", 0, 9)
    store = Store("y", "int8", position, ex.const(1, "i32"))
    spec = KernelSpec(
        "map",
        MapConfig(1, 64),
        (BoundTensor("y", "read_write", "int8"),),
        (Hook("store", ("q",), 1, (), None, (store,)),),
        (("threads", 10),),
        64,
        (1, 1, 1),
    )
    with pytest.raises(LimitError, match="whole words"):
        render(spec)


# -- indices and lanes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 7, 16])
@pytest.mark.parametrize("offset", [0, -20])
def test_index_divisions(divisor, offset, each_device):
    """Floor division and remainder of coordinates, also of negative ones."""

    def build(value: ex.Expr) -> ex.Expr:
        shifted = ix.add(value.payload.position, offset)
        quotient, rest = ix.floordiv(shifted, divisor), ix.modulo(shifted, divisor)
        return ex.binary("add", ex.binary("mul", ex.coordinate(quotient), ex.const(1000, "i32")), ex.coordinate(rest))

    values = np.arange(40, dtype=np.int32)
    found = both_forms(each_device, build, [values], "int32")
    shifted = values + offset
    np.testing.assert_array_equal(found, shifted // divisor * 1000 + shifted % divisor)


def test_guarded_loads_of_lanes(each_device):
    """A guard that differs by lane, one that all lanes agree on, and one inside another."""
    values = np.arange(1, 41, dtype=np.float32)

    def build(load: ex.Expr) -> ex.Expr:
        where = load.payload.position
        shifted = ex.load("x0", "float32", ix.add(where, -3), "f32")
        inner = ex.guard(ex.in_range(ix.add(where, -3), 0, 31), shifted, ex.const(-1.0, "f32"))
        outer = ex.guard(ex.in_range(where, 0, 20), ex.binary("add", inner, load), ex.const(-2.0, "f32"))
        return ex.binary("mul", outer, ex.const(2.0, "f32"))

    found = both_forms(each_device, build, [values], "float32")
    place = np.arange(40)
    shifted = np.where((place >= 3) & (place < 34), np.roll(values, 3), -1.0)
    np.testing.assert_array_equal(found, 2 * np.where(place < 20, shifted + values, -2.0))


def test_indices_read_at_run_time(each_device):
    table = np.arange(100, 140, dtype=np.float32)
    places = np.array([39, 0, 5, 5, -1, 17, 2, 38] * 5, np.int64)

    def build(_: ex.Expr, place: ex.Expr) -> ex.Expr:
        wrapped = ex.select(
            ex.compare("lt", place, ex.const(0, "i64")), ex.binary("add", place, ex.const(40, "i64")), place
        )
        return ex.load("x0", "float32", ex.as_index(wrapped, 0, 39), "f32")

    np.testing.assert_array_equal(both_forms(each_device, build, [table, places], "float32"), table[places])


def test_alignment_of_lanes():
    base = ix.variable("q", 0, 9)
    lanes = ix.add(ix.multiply(base, 4), lane_variable())
    assert is_aligned(lanes)
    assert not is_aligned(ix.add(lanes, 2))
    assert not is_aligned(ix.multiply(lanes, 2))
    assert not is_aligned(base)
    assert split_lane(ix.add(ix.multiply(lane_variable(), 3), base)) == (base, 3)
    assert split_lane(ix.modulo(lanes, 3)) == (None, 0)


def test_sizes_with_divisions_stand_inline():
    """A dim of a declared dynamic size may need a division; it has no statement of its own."""
    size = ix.variable("n", 1, 1000)
    functions = Functions()
    emitter = Emitter({}, frozenset(), frozenset({"n"}), functions)
    emitter.index(ix.ceildiv(size, 4))
    assert emitter.lines, "a division gets a name in a function"
    store = Store(
        "y", "float32", ix.add(ix.multiply(ix.variable("q", 0, 249), 4), lane_variable()), ex.const(1.0, "f32")
    )
    spec = KernelSpec(
        "map",
        MapConfig(4, 64),
        (BoundTensor("y", "read_write", "float32"),),
        (Hook("store", ("q",), 4, (), None, (store,)),),
        (("threads", ix.ceildiv(size, 4)),),
        64,
        (ix.ceildiv(size, 256), 1, 1),
        ("n",),
    )
    assert "q < " in render(spec).wgsl and "symbols.s_n" in render(spec).wgsl


# -- golden kernels ----------------------------------------------------------------------------------------------------


def _map_models() -> dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray], dict[str, list]]]:
    """Name -> nodes, inputs, declared shapes with names of dynamic dimensions."""
    node = helper.make_node
    f32, f16 = np.float32, np.float16
    return {
        "relu_vector": ([node("Relu", ["x"], ["y"])], {"x": np.zeros((2, 8), f32)}, {}),
        "relu_dynamic": ([node("Relu", ["x"], ["y"])], {"x": np.zeros((2, 8), f32)}, {"x": ["n", 7]}),
        "add_broadcast_odd": (
            [node("Add", ["x", "b"], ["y"])], {"x": np.zeros((3, 5), f32), "b": np.zeros((5,), f32)}, {}),
        "gelu_chain": (
            [node("Gelu", ["x"], ["t"]), node("Mul", ["t", "b"], ["y"])],
            {"x": np.zeros((4, 8), f32), "b": np.zeros((8,), f32)}, {}),
        "half_sigmoid": ([node("Sigmoid", ["x"], ["y"])], {"x": np.zeros((3, 7), f16)}, {}),
        "cast_to_bytes": ([node("Cast", ["x"], ["y"], to=3)], {"x": np.zeros((10,), f32)}, {}),
        "wide_integers": (
            [node("Mul", ["x", "b"], ["t"]), node("Max", ["t", "x"], ["y"])],
            {"x": np.zeros((6,), np.int64), "b": np.zeros((6,), np.int64)}, {}),
        "transpose": ([node("Transpose", ["x"], ["y"], perm=[1, 0])], {"x": np.zeros((3, 5), f32)}, {}),
        "where_isnan": (
            [node("IsNaN", ["x"], ["m"]), node("Where", ["m", "b", "x"], ["y"])],
            {"x": np.zeros((8,), f32), "b": np.zeros((1,), f32)}, {}),
    }  # fmt: skip


@pytest.mark.parametrize("name", _map_models())
def test_golden_map_kernels(name):
    nodes, feeds, dims = _map_models()[name]
    model = make_model(nodes, feeds, ["y"], dims=dims)
    dynamic = {dim: (1, 64) for shape in dims.values() for dim in shape if isinstance(dim, str)}
    feeds = {key: np.zeros((2, 7), array.dtype) if key in dims else array for key, array in feeds.items()}
    _, made, _ = compile_kernels(model, feeds, WEB, dynamic=dynamic)
    ((kernel, _),) = made
    check_golden(f"wgsl/{name}.wgsl", kernel.wgsl)
