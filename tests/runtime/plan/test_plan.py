"""What print and repr show of a plan.  Covers: runtime/plan/plan."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import onnx

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.runtime.plan.plan import Plan

from ...support.plans import two_call_plan

TEXT = """
<ir_version: 9, opset_import: ["" : 17]>
layer (float[n, 16] x) => (float[n, 8] y) { p = MatMul (x, w)  s = Softmax (p)  y = Neg (s) }
"""


def compiled() -> Plan:
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((16, 8), np.float32), "w"))
    model = load_model(proto.SerializeToString())
    return compile_model(model, bind_shapes(model, {"x": (4, 16)}, {"n": (1, 64)}), Compilation())


def test_a_plan_prints_a_line_for_each_call_and_totals():
    plan = compiled()
    product, rows = (kernel.id for kernel in plan.kernels)
    assert str(plan).splitlines() == [
        f"plan {plan.key[:12]}: x:float32[nx16] -> y:float32[nx8]",
        f"    0  {product}  gemm_shared    1x(// (+ 31 n) 32)x1  %2:float32[nx8] = (x, w)  # MatMul (main node 0)",
        f"    1  {rows}  reduce_serial  1x1x1  y:float32[nx8] = (%2)  # Softmax (main node 1), Neg (main node 2)",
        "kernels 2, calls 2, arenas 1 (2,048 bytes at most), weights 1 (512 bytes, 0 transformed)",
    ]


def test_a_plan_without_facts_prints_its_buffers():
    plan = two_call_plan()
    first, second = (call.kernel[:12] for call in plan.calls)
    nodes = ", ".join(plan.calls[0].origins)
    assert str(plan).splitlines() == [
        "plan two-call: x:float32[100] -> y:float32[100]",
        f"    0  {first}  map        2x1x1  input:x, weight:bias-doubled, arena:0  # {nodes}",
        f"    1  {second}  map        2x1x1  arena:0, output:y  # double",
        "kernels 3, calls 2, arenas 1 (656 bytes), weights 1 (48 bytes, 1 transformed)",
    ]


def test_the_key_is_the_digest_of_the_contents_once_it_is_asked_for():
    plan = compiled()
    assert vars(plan)["key"] == ""
    assert len(plan.key) == 64
    assert vars(plan)["key"] == plan.key == plan.content_digest() == compiled().to_json()["key"]
    assert Plan.from_json(plan.to_json()) == plan == pickle.loads(pickle.dumps(compiled()))
    assert replace(plan, arenas=(4,)).content_digest() != plan.key
    assert two_call_plan().key == "two-call"


def test_representations_hold_no_shader():
    plan = compiled()
    assert repr(plan) == f"Plan('{plan.key[:12]}', 2 kernels, 2 calls)"
    assert "@compute" not in repr(plan.kernels)
