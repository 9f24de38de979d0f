"""Kernels that several problems share: what they read from a uniform, and what they compute.

Covers: compiler/codegen/sharing.py, compiler/codegen/strided.py, runtime/execution/problem_buffer.py.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from functools import reduce

import numpy as np
import onnx
import pytest

from shaderloom.compiler.codegen import sharing
from shaderloom.compiler.codegen.sharing import SharedKernel, alone
from shaderloom.compiler.codegen.spec import BoundTensor, Hook, KernelSpec, Store
from shaderloom.compiler.codegen.strided import strided
from shaderloom.compiler.codegen.writer import Numbers
from shaderloom.compiler.kernels.map import MapConfig
from shaderloom.compiler.symbolic import expr as ex
from shaderloom.compiler.symbolic import polynomial as ix
from shaderloom.compiler.symbolic import substitution
from shaderloom.compiler.symbolic.lanes import lane_variable
from shaderloom.plans.describe import describe_plan
from shaderloom.runtime.plan.device_profile import WEB
from shaderloom.runtime.plan.plan import Plan

from ...support.comparison import relative_error
from ...support.running import compile_for, run_plan

SIZES = (64, 128, 192, 256)


def model(sizes=SIZES, rows="40", head="") -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Return products of ``sizes`` in a row, with a Tanh behind each, and their weights."""
    generator = np.random.default_rng(3)
    weights = [generator.standard_normal(pair, np.float32) / 8 for pair in itertools.pairwise(sizes)]
    body = "".join(
        f"p{number} = MatMul (t{number}, w{number})  t{number + 1} = Tanh (p{number})\n"
        for number in range(len(weights))
    )
    body = body.replace("t0", "x").replace(f"t{len(weights)} ", "y ")
    text = f'<ir_version: 9, opset_import: ["" : 17]> g (float[{rows}, {sizes[0]}] x) => (float[{rows}, {sizes[-1]}] y)'
    proto = onnx.parser.parse_model(f"{text} {{ {head}{body} }}")
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(each, f"w{n}") for n, each in enumerate(weights))
    return proto, weights


def expected(x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    result = x.astype(np.float64)
    for weight in weights:
        result = np.tanh(result @ weight)
    return result.astype(np.float32)


def array(rows: int = 40) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, SIZES[0]), np.float32)


def compiled(proto: onnx.ModelProto, x: np.ndarray, **options) -> Plan:
    return compile_for(proto, {"x": x}, options.pop("profile", WEB), **options)


def test_problems_that_differ_in_sizes_share_a_kernel(device):
    proto, weights = model()
    x = array()
    plan = compiled(proto, x)
    assert len(plan.calls) == 3 and len(plan.kernels) == 1
    assert len(plan.problems) == 3 and plan.kernels[0].bindings[-1].name == "problem"
    described = describe_plan(plan)
    (row,) = described["kernels"]
    assert row["problems"] == 3
    assert len({call["decision"]["problem"] for call in described["call_list"]}) == 3
    (y,) = run_plan(device, plan, proto, {"x": x})
    assert relative_error(y, expected(x, weights)) < 1e-5


def test_a_problem_of_its_own_spells_its_sizes():
    proto, _ = model(SIZES[:2])
    plan = compiled(proto, array())
    assert plan.problems == () and "problem" not in plan.kernels[0].wgsl


def test_numbers_in_common_are_spelled_and_equal_ones_are_one_field():
    """Both products have 40 rows and 64 terms; their columns, in vectors, are read in two places."""
    proto, _ = model((64, 64, 128))
    plan = compiled(proto, array())
    (kernel,) = plan.kernels
    assert sorted(plan.problems) == [(16,), (32,)]
    assert "40 - 1" in kernel.wgsl and "k0 < 64" in kernel.wgsl and kernel.wgsl.count("problem.n0") > 2


def test_a_shared_kernel_reads_declared_dimensions_too(device):
    proto, weights = model(rows="N")
    feeds = [{"x": array(rows)} for rows in (7, 40, 33)]
    plan = compiled(proto, feeds[1]["x"], dynamic={"N": (1, 64)})
    (kernel,) = plan.kernels
    assert [binding.name for binding in kernel.bindings[-2:]] == ["symbols", "problem"]
    for each, (y,) in zip(feeds, run_plan(device, plan, proto, feeds)):
        assert relative_error(y, expected(each["x"], weights)) < 1e-5


def test_software_drivers_share_kernels_too(each_device):
    proto, weights = model((64, 96, 96))
    x = array()
    plan = compiled(proto, x, profile=each_device.profile)
    assert len(plan.calls) == 2 and len(plan.kernels) == 1 and len(plan.problems) == 2
    (y,) = run_plan(each_device, plan, proto, {"x": x})
    assert relative_error(y, expected(x, weights)) < 1e-5


@pytest.mark.parametrize("adapter", ["llvmpipe (LLVM 15.0.6, 256 bits)", ""])
def test_a_driver_that_inlines_uniforms_does_not_see_the_numbers(adapter):
    """Mesa compiles a loop anew for each bound that it reads from a uniform: they are read once, with a zero added."""
    proto, _ = model()
    plan = compiled(proto, array(), profile=replace(WEB, kind="cpu", adapter=adapter))
    texts = [kernel.wgsl for kernel in plan.kernels if kernel.bindings[-1].name == "problem"]
    assert texts
    for text in texts:
        before, copy, after = re.split(r"(\n  let numbers_of_main = Problem\([^\n]*\);)", text)
        assert re.search(r"let zero_of_problem = i32\(\w+\.z >> 31u\);$", before)
        assert re.fullmatch(r"(problem\.n\d+ \+ zero_of_problem(, )?)+", copy.partition("(")[2].removesuffix(");"))
        assert "problem.n" not in before + after and "< numbers_of_main.n" in after


def test_plans_with_problems_are_read_back():
    proto, _ = model()
    plan = compiled(proto, array())
    assert Plan.from_json(plan.to_json()) == plan


def made_of_weights(sizes: tuple[int, ...]) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Return products with the exponentials of weights of ``sizes`` columns, too large to be folded."""
    numbers = range(len(sizes))
    body = "".join(f"v{n} = Exp (u{n})  y{n} = MatMul (x, v{n})\n" for n in numbers)
    outputs = ", ".join(f"float[40, {size}] y{n}" for n, size in enumerate(sizes))
    proto = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> g (float[40, 64] x) => ({outputs}) {{ {body} }}'
    )
    arrays = [array(size).T.copy() for size in sizes]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(each, f"u{n}") for n, each in enumerate(arrays))
    return proto, arrays


def test_kernels_of_weights_depend_on_no_other(device):
    """The key of a weight is that of other plans, too."""
    x, options = array(), {"disabled_passes": ("fuse", "siblings")}
    proto, arrays = made_of_weights((512, 768))
    plan = compiled(proto, x, **options)
    made = [weight for weight in plan.weights if weight.calls]
    assert len(made) == 2 and len({call.kernel for weight in made for call in weight.calls}) == 1
    for y, each in zip(run_plan(device, plan, proto, {"x": x}), arrays):
        expected = x.astype(np.float64) @ np.exp(each.astype(np.float64))
        assert relative_error(y, expected.astype(np.float32)) < 1e-5
    alone = compiled(made_of_weights((512,))[0], x, **options)
    assert [weight.key for weight in alone.weights] == [made[0].key]


def test_registers_come_first_in_sums():
    register = ex.register("value", "f32")
    load = ex.load("x0", "float32", (0,), "f32")
    other = ex.load("x1", "float32", (0,), "f32")
    one = ex.binary("add", other, ex.binary("add", load, register))
    assert substitution.registers_first(one) is ex.binary("add", ex.binary("add", register, load), other)
    assert substitution.registers_first(ex.binary("sub", load, register)) is ex.binary("sub", load, register)


def copied(position: ix.Dim, limit: int) -> tuple[KernelSpec, SharedKernel]:
    """Return a kernel that copies the four elements at ``position`` for each q below ``limit``, and its spec."""
    value = ex.load("x0", "float32", (position,), "f32")
    q = ix.coordinate("q", limit)
    store = Store("y", "float32", ix.add(ix.multiply(q, 4), lane_variable()), value)
    spec = KernelSpec(
        "map",
        MapConfig(4, 256),
        (BoundTensor("x0", "read", "float32"), BoundTensor("y", "read_write", "float32")),
        (Hook("store", ("q",), 4, (), None, (store,)),),
        (("threads", limit),),
        256,
        (1, 1, 1),
    )
    return spec, alone(spec)


def test_copies_from_regular_places_are_one_kernel():
    """Transpositions of two, three and four axes, and a shifted one; the places are evaluated for every element."""
    limit = 2 * 3 * 5 * 7
    q, lane = ix.coordinate("q", limit), lane_variable()
    two = ix.add(ix.multiply(ix.modulo(q, 7), 4 * 30), ix.floordiv(q, 7))
    inner = ix.modulo(q, 35)
    four = [
        ix.multiply(ix.modulo(inner, 5), 11),
        ix.multiply(ix.floordiv(inner, 5), 61),
        ix.multiply(ix.modulo(ix.floordiv(q, 35), 3), 500),
        ix.multiply(ix.floordiv(q, 105), 2000),
    ]
    keys = set()
    for terms, step, start in (([two], 30, 0), ([two], 30, 17), (four[1:], 30, 0), (four, 3, 5)):
        position = reduce(ix.add, [*terms, ix.multiply(lane, step), start])
        spec, shared = copied(position, limit)
        keys.add(shared.kernel.key)
        numbers = Numbers()
        common = strided(spec, numbers).hooks[0].stores[0].value.payload.position
        fields = {f"problem.n{number}": value for number, value in enumerate(numbers.values)}
        for number, element in itertools.product(range(limit), range(4)):
            place = {"q": number, "lane": element}
            assert ix.evaluate(common, {**fields, **place}) == ix.evaluate(position, place)
    assert len(keys) == 1


def test_a_copy_is_written_once_for_all_its_sizes(monkeypatch):
    """A kernel and a problem that were put together are those that are written."""
    sharing._copy.cache_clear()
    written = []
    render = sharing.render
    monkeypatch.setattr(sharing, "render", lambda *args: written.append(1) or render(*args))
    lane = lane_variable()
    kernels = []
    for rows, columns in ((7, 30), (5, 12), (64, 3), (3, 1)):
        q = ix.coordinate("q", rows * columns)
        base = ix.add(ix.multiply(ix.modulo(q, rows), 4 * columns), ix.floordiv(q, rows))
        spec, together = copied(ix.add(base, ix.multiply(lane, columns)), rows * columns)
        kernels.append(together.kernel)
        with monkeypatch.context() as patch:
            patch.setattr(sharing, "_copy", lambda spec, fields: None)
            count = len(written)
            assert alone(spec) == together
            del written[count:]
    *same, small = kernels  # which spells its size
    assert same == [same[0]] * 3
    assert small != same[0]
    assert len(written) == 2


def test_other_copies_keep_their_form():
    """A remainder across a digit's edge, a negative stride, and neighbours that one vector load reads."""
    q, lane = ix.coordinate("q", 60), lane_variable()
    uneven = ix.modulo(ix.modulo(q, 10), 4)
    for base in (ix.multiply(uneven, 8), ix.add(ix.multiply(q, -8), 480), None):
        position = ix.add(ix.multiply(q, 4), lane) if base is None else ix.add(base, ix.multiply(lane, 2))
        spec, _ = copied(position, 60)
        assert strided(spec, Numbers()) is spec


def test_a_shared_kernel_is_there_before_others_are_written(monkeypatch):
    """A driver can begin with it."""
    copies = [copied(ix.multiply(ix.coordinate("q", 8), stride), 8)[0] for stride in (8, 12)]
    others = [replace(spec, threads=32) for spec in copies]
    written = []
    monkeypatch.setattr(
        sharing, "_outline", lambda spec, outline=sharing._outline: written.append(spec) or outline(spec)
    )
    kernels = sharing.shared([*copies, *others])
    assert next(kernels)[0] == copies[0]
    assert written == copies
    assert [spec for spec, _ in kernels] == [copies[1], *others]


def test_kernels_of_a_form_of_their_own_come_first():
    copies = [copied(ix.multiply(ix.coordinate("q", 8), stride), 8)[0] for stride in (8, 12)]
    other = replace(copies[0], threads=32)
    kernels = list(sharing.shared([*copies, other]))
    assert [spec for spec, _ in kernels] == [other, *copies]
    assert [len(shared.problem) for _, shared in kernels] == [0, 1, 1]


def test_small_sizes_are_read_too():
    """They are fields of a uniform as the sizes of larger problems are."""
    specs = [copied(ix.multiply(ix.coordinate("q", size), 8), size)[0] for size in (2, 3, 60)]
    kernels = {shared.kernel.key: shared for _, shared in sharing.shared(specs)}
    assert len(kernels) == 1


def test_small_divisors_are_read_too():
    keys = set()
    for divisor in (2, 3, 5):
        place = ix.multiply(ix.modulo(ix.coordinate("q", 60), divisor), -8)
        _, shared = copied(reduce(ix.add, [place, ix.multiply(lane_variable(), 2), 480]), 60)
        keys.add(shared.kernel.key)
        assert divisor in shared.problem
    assert len(keys) == 1
