"""Plans written by hand, so that the runtime is tested without the compiler."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from shaderloom.runtime.plan.facts import EvaluationTime, PlanFacts
from shaderloom.runtime.plan.plan import (
    Binding,
    ComputePass,
    Kernel,
    KernelCall,
    Plan,
    Port,
    Range,
    SourceRef,
    Symbol,
    Weight,
)

if TYPE_CHECKING:
    import pytest

    from shaderloom.compiler.binding.shape_binding import BoundShapes
    from shaderloom.compiler.compilation import Compilation
    from shaderloom.compiler.frontend.model import ImportedModel
    from shaderloom.compiler.passes.lowering import CompilationUnit

SCALE_ADD = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COUNT) { return; }
    y[id.x] = x[id.x] * 2.0 + w[id.x % WEIGHTS];
}
"""

DOUBLE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COUNT) { return; }
    y[id.x] = x[id.x] + x[id.x];
}
"""

DYNAMIC_DOUBLE = """
struct Symbols { n: i32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> symbols: Symbols;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (i32(id.x) >= symbols.n * 3) { return; }
    y[id.x] = x[id.x] + x[id.x];
}
"""


def kernel(wgsl: str, *accesses: str, name: str = "map") -> Kernel:
    """A kernel with one binding for each access."""
    bindings = tuple(Binding(f"b{index}", access, "f32") for index, access in enumerate(accesses))
    return Kernel(hashlib.sha256(wgsl.encode()).hexdigest(), name, wgsl, (64, 1, 1), bindings)


def span(buffer: str, elements: int, offset: int = 0) -> Range:
    return Range(buffer, offset, (elements * 4 + 15) // 16 * 16)


def two_call_plan(count: int = 100, weights: int = 10, key: str = "two-call") -> Plan:
    """y = (x * 2 + t) * 2 where t is the initializer ``bias`` doubled on the device; one arena between the calls."""
    first = kernel(
        SCALE_ADD.replace("COUNT", f"{count}u").replace("WEIGHTS", f"{weights}u"), "read", "read", "read_write"
    )
    second = kernel(DOUBLE.replace("COUNT", f"{count}u"), "read", "read_write")
    transform = kernel(DOUBLE.replace("COUNT", f"{weights}u"), "read", "read_write", name="transform")
    grid = ((count + 63) // 64, 1, 1)
    bias = SourceRef("bias", "", 0, weights * 4, "float32", (weights,))
    weight = Weight(
        "bias-doubled",
        (weights * 4 + 15) // 16 * 16,
        ("bias",),
        (
            KernelCall(
                transform.key,
                (span("source:bias", weights), span("weight:bias-doubled", weights)),
                ((weights + 63) // 64, 1, 1),
            ),
        ),
        "bias",
    )
    return Plan(
        key=key,
        inputs=(Port("x", "float32", (count,)),),
        outputs=(Port("y", "float32", (count,)),),
        symbols=(),
        kernels=tuple({item.key: item for item in (first, second, transform)}.values()),
        sources=(bias,),
        weights=(weight,),
        commands=(
            ComputePass(
                (
                    KernelCall(
                        first.key,
                        (span("input:x", count), span("weight:bias-doubled", weights), span("arena:0", count, 256)),
                        grid,
                        origins=("Mul (main node 0)", "Add (main node 1)"),
                        label="scale",
                    ),
                    KernelCall(
                        second.key, (span("arena:0", count, 256), span("output:y", count)), grid, label="double"
                    ),
                )
            ),
        ),
        arenas=(256 + (count * 4 + 15) // 16 * 16,),
        facts=PlanFacts(nodes=(EvaluationTime.RUN,) * 3),
    )


def dynamic_plan(low: int = 0, high: int = 1000) -> Plan:
    """y = x + x for x of shape [n, 3] with n declared dynamic."""
    doubling = kernel(DYNAMIC_DOUBLE, "read", "read_write", "uniform")
    size = ["*", 16, ["max", 1, ["//", ["+", ["*", "n", 12], 15], 16]]]
    grid = (["//", ["+", ["*", "n", 3], 63], 64], 1, 1)
    ranges = (Range("input:x", 0, size), Range("output:y", 0, size), Range("symbols", 0, 16))
    return Plan(
        key="dynamic",
        inputs=(Port("x", "float32", ("n", 3)),),
        outputs=(Port("y", "float32", ("n", 3)),),
        symbols=(Symbol("n", low, high),),
        kernels=(doubling,),
        sources=(),
        weights=(),
        commands=(ComputePass((KernelCall(doubling.key, ranges, grid, label="double"),)),),
        arenas=(),
    )


def compile_two_call(imported: ImportedModel, bound: BoundShapes) -> Plan:
    """Stands in for the compiler on :func:`two_call_model`: the plan written by hand, its weight from the file."""
    count = bound.sizes["N"]
    reference = imported.graph.constants["bias"].to_ref()
    plan = two_call_plan(count, reference.shape[0], key=f"two-call-{count}")
    return replace(plan, sources=(replace(reference, key="bias"),))


def replace_compiler(
    monkeypatch: pytest.MonkeyPatch, stand_in: Callable[[ImportedModel, BoundShapes], Plan] = compile_two_call
) -> None:
    """Let ``stand_in`` make the plans of models, for this test; what stops before a plan is compiled as ever."""
    from shaderloom.compiler import driver

    compile_unit, model_unit = driver.compile_unit, driver.model_unit
    sources: dict[int, tuple[ImportedModel, BoundShapes]] = {}

    def remember(imported: ImportedModel, bound: BoundShapes) -> CompilationUnit:
        unit = model_unit(imported, bound)
        sources[id(unit)] = imported, bound
        return unit

    def compile_otherwise(unit: CompilationUnit, compilation: Compilation, *, until: str | None = None) -> Any:
        if until is not None:
            return compile_unit(unit, compilation, until=until)
        return SimpleNamespace(plan=stand_in(*sources[id(unit)]))

    monkeypatch.setattr(driver, "model_unit", remember)
    monkeypatch.setattr(driver, "compile_unit", compile_otherwise)


def two_call_model(elements: int = 10) -> onnx.ModelProto:
    """y = 2 (2 x + 2 bias), with ``bias`` an initializer of ``elements`` elements, tiled over x."""
    bias = onnx.numpy_helper.from_array(np.arange(elements, dtype=np.float32), "bias")
    two = onnx.numpy_helper.from_array(np.float32(2), "two")
    nodes = [
        onnx.helper.make_node("Mul", ["x", "two"], ["a"]),
        onnx.helper.make_node("Add", ["bias", "bias"], ["b"]),
        onnx.helper.make_node("Add", ["a", "b"], ["c"]),
        onnx.helper.make_node("Add", ["c", "c"], ["y"]),
    ]
    port = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "two-call",
        [port("x", onnx.TensorProto.FLOAT, ["N"])],
        [port("y", onnx.TensorProto.FLOAT, ["N"])],
        [bias, two],
        doc_string="a graph",
    )
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, producer_name="tests", opset_imports=[opset], doc_string="a model")
    model.ir_version = 8
    model.model_version = 3
    model.metadata_props.add(key="colour", value="blue")
    return model
