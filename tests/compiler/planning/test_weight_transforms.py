"""Keys of weights that kernels make: equal weights share one entry of the pool.  Covers: compiler/planning."""

from __future__ import annotations

import numpy as np
import onnx

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.options import CompileOptions
from shaderloom.runtime.plan.plan import Plan

HEAD = '<ir_version: 9, opset_import: ["" : 17]> g (float[4, 64] x) => (float[4, 512] y) '


def compiled(body: str) -> Plan:
    """Compile a graph that may read a weight ``w``, too large to be folded, without fusion into its reader."""
    proto = onnx.parser.parse_model(HEAD + body)
    weight = np.random.default_rng(0).standard_normal((64, 512), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    model = load_model(proto.SerializeToString())
    options = CompileOptions(("fuse",))
    return compile_model(model, bind_shapes(model, {"x": (4, 64)}), Compilation(options=options))


def transformed(plan: Plan) -> list[str]:
    return [weight.key for weight in plan.weights if weight.calls]


def test_keys_of_equal_transforms_are_equal_in_all_plans():
    plain = compiled("{ e = Exp (w)  y = MatMul (x, e) }")
    longer = compiled("{ a = Neg (x)  b = Softmax (a)  e = Exp (w)  y = MatMul (b, e) }")
    assert len(transformed(plain)) == 1
    assert transformed(plain) == transformed(longer)


def test_keys_of_other_transforms_differ():
    (first,) = transformed(compiled("{ e = Exp (w)  y = MatMul (x, e) }"))
    (second,) = transformed(compiled("{ e = Tanh (w)  y = MatMul (x, e) }"))
    assert first != second


def test_a_transform_ends_with_the_weight_that_it_is():
    (weight,) = (weight for weight in compiled("{ e = Exp (w)  y = MatMul (x, e) }").weights if weight.calls)
    assert [item.buffer for item in weight.calls[-1].ranges if item.buffer == f"weight:{weight.key}"]
    assert all(item.buffer != "weight:result" for call in weight.calls for item in call.ranges)
