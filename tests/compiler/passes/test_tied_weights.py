"""A table that a product reads and from which rows are selected is one weight, in the order of the product.

Covers: compiler/passes/tied_weights, compiler/staging/program_graph.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle

from ...support.comparison import reference, relative_error
from ...support.large_weights import Model, bytes_of, floats, indices, limited, made, node, tied
from ...support.programs import parse
from ...support.running import compile_for, run_plan
from ...support.sessions import engine_of

ROWS, SIZE = 1003, 38
#: What the product reads: its columns are padded to whole vectors
PADDED = 1004 * SIZE * 4

PRODUCT = [node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["e", "t"], ["y"])]


def _wide(*shape: int) -> Model:
    """Indices of several axes, or of none."""
    nodes = [node("Gather", ["w", "i"], ["e"]), *PRODUCT]
    return made(nodes, {"i": np.asarray(indices(ROWS, *shape or (1,)).reshape(shape))}, w=floats(ROWS, SIZE))


def _by_columns() -> Model:
    """The table has the order of the product, which pads it."""
    nodes = [
        node("Gather", ["w", "i"], ["c"], axis=1),
        node("Transpose", ["c"], ["e"], perm=[1, 0]),
        node("MatMul", ["e", "w"], ["y"]),
    ]
    return made(nodes, {"i": indices(ROWS, 5)}, w=floats(SIZE, ROWS))


def _filters() -> Model:
    """Filters [channels, 5, 3, 3] of a convolution, of which some are outputs as well."""
    nodes = [node("Conv", ["x", "w"], ["y"]), node("Gather", ["w", "i"], ["z"], axis=1)]
    return made(nodes, {"x": floats(1, 5, 9, 9), "i": indices(5, 2, 3)}, ["y", "z"], w=floats(102, 5, 3, 3))


def _twice() -> Model:
    """Two selections and two products."""
    nodes = [
        *(node("Gather", ["w", "i"], ["e"]), node("Gather", ["w", "j"], ["f"]), node("Tanh", ["f"], ["g"])),
        *(*PRODUCT, node("MatMul", ["g", "t"], ["z"])),
    ]
    return made(nodes, {"i": indices(ROWS, 5), "j": indices(ROWS, 2, 3)}, ["y", "z"], w=floats(ROWS, SIZE))


def _codes() -> Model:
    """Bytes with a scale for each row, which kernels dequantise."""
    nodes = [
        *(node("Cast", ["q"], ["f"], to=1), node("Mul", ["f", "s"], ["w"]), node("Gather", ["w", "i"], ["e"])),
        *PRODUCT,
    ]
    return made(nodes, {"i": indices(ROWS, 5)}, q=bytes_of(ROWS, SIZE, dtype="int8"), s=floats(ROWS, 1))


#: By name a model, and the bytes of what it holds of the table
ONCE = {
    "rows": (lambda: tied(ROWS), [PADDED]),
    "no axis": (lambda: _wide(), [PADDED]),
    "three axes": (lambda: _wide(2, 1, 3), [PADDED]),
    "columns": (_by_columns, [PADDED]),
    "filters": (_filters, [104 * 5 * 3 * 3 * 4]),
    "twice": (_twice, [PADDED]),
    "codes": (_codes, [1004 * SIZE, ROWS * 4]),
}


@pytest.mark.parametrize("name", ONCE)
def test_a_table_is_one_weight(each_device, name: str):
    build, weights = ONCE[name]
    model, feeds = build()
    plan = compile_for(model, feeds, each_device.profile)
    assert [weight.bytes for weight in plan.weights] == [-(-size // 16) * 16 for size in weights]
    for found, expected in zip(run_plan(each_device, plan, model, feeds), reference(model, feeds), strict=True):
        assert found.shape == expected.shape
        assert relative_error(found, expected) <= 2e-5


@pytest.mark.parametrize(("dtype", "precision"), [("float16", "float32"), ("float32", "float16")])
def test_halves_are_one_weight(each_device, dtype: str, precision: str):
    """Devices without 16-bit floats store the table as float32."""
    model, feeds = tied(ROWS, dtype=dtype)
    plan = compile_for(model, feeds, each_device.profile, precision=precision)
    assert len(plan.weights) == 1
    (found,) = run_plan(each_device, plan, model, feeds)
    assert relative_error(found, reference(model, feeds)[0]) <= 2e-3


def test_parts_of_a_table_are_shared(each_device):
    model, feeds = tied(ROWS)
    plan = compile_for(model, feeds, limited(each_device.profile, 1 << 15))
    assert len(plan.weights) == 6
    assert sum(weight.bytes for weight in plan.weights) == PADDED
    (found,) = run_plan(each_device, plan, model, feeds)
    assert relative_error(found, reference(model, feeds)[0]) <= 2e-5


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([node("Gather", ["w", "i"], ["e"]), node("Add", ["w", "x"], ["z"])], ["y", "z"]),
        ([node("Gather", ["w", "i"], ["e"])], ["y", "w"]),
    ],
    ids=["arithmetic", "output"],
)
def test_a_table_that_is_read_otherwise_keeps_its_order(device, nodes, outputs):
    feeds = {"i": indices(ROWS, 5), **({"x": floats(ROWS, SIZE)} if "z" in outputs else {})}
    model, feeds = made([*nodes, *PRODUCT], feeds, outputs, w=floats(ROWS, SIZE))
    plan = compile_for(model, feeds, device.profile)
    assert len(plan.weights) == 2
    for found, expected in zip(run_plan(device, plan, model, feeds), reference(model, feeds), strict=True):
        assert relative_error(found, expected) <= 2e-5


#: A table of which a stage selects rows, and by which stages multiply that follow what is computed of these
STAGES = {
    "products": "v = Transpose<perm = [1, 0]>(w)  r = MatMul(s, v)",
    "Gemm": "r = Gemm<transB = 1>(s, w)",
}


@pytest.mark.parametrize("limit", [1 << 20, 1 << 15])
@pytest.mark.parametrize("name", STAGES)
def test_stages_share_a_table(device, tmp_path, name: str, limit: int):
    text = """g (int64[5] i, float limit) => (float[5, 1003] y) {
        e = Gather(w, i)  t = Tanh(e)  most = ReduceMax<keepdims = 0>(t)  c = Greater(most, limit)
        y = If (c) < then_branch = a () => (float[5, 1003] r) { s = Neg(t)  PRODUCT },
                     else_branch = b () => (float[5, 1003] r) { s = Exp(t)  PRODUCT } > }"""
    model = parse(text.replace("PRODUCT", STAGES[name]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(floats(ROWS, SIZE), "w"))
    limits = {"maxStorageBufferBindingSize": limit, "maxBufferSize": limit}
    manifest = compile_bundle(model, tmp_path / "b", shapes=[{"i": (5,), "limit": ()}], limits=limits)
    assert len({stage.key for stage in manifest.programs[0].stages}) == 3
    assert sum(part.length for parts in manifest.weights.values() for part in parts) == PADDED
    with (
        shaderloom.load_bundle(tmp_path / "b", device=device) as bundle,
        shaderloom.InferenceSession(model.SerializeToString(), device=device, cache=False) as session,
    ):
        for bound in (-2, 2):
            feeds = {"i": indices(ROWS, 5), "limit": np.array(bound, np.float32)}
            (expected,) = reference(model, feeds)
            for opened in (bundle, session):
                (found,) = opened.run(None, feeds)
                assert relative_error(found, expected) <= 2e-5
        assert engine_of(session).resources.pool.bytes == PADDED


def test_branches_share_a_table(tmp_path):
    """Each side of a bundle selects rows and multiplies."""
    model = parse("""g (int64[k] i, bool c) => (float[n, 1003] y) {
        y = If (c) < then_branch = a () => (float[p, 1003] r) {
                         e = Gather(w, i)  s = Neg(e)  t = Transpose<perm = [1, 0]>(w)  r = MatMul(s, t) },
                     else_branch = b () => (float[q, 1003] u) {
                         e = Gather(w, i)  t = Transpose<perm = [1, 0]>(w)  u = MatMul(e, t) } > }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(floats(ROWS, SIZE), "w"))
    manifest = compile_bundle(model, tmp_path / "b", shapes=[{"i": (5,), "c": ()}])
    assert [sum(part.length for part in parts) for parts in manifest.weights.values()] == [PADDED]
