"""A device with OpenGL ES 3.1's least workgroups of 128 threads: kernels that have more elsewhere have fewer there.

Covers: compiler/target, compiler/tuning, compiler/kernels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx.parser
import pytest

from shaderloom.runtime.plan.device_profile import WEB

from ...support.running import compile_for

NAMES = ("invocations-per-workgroup", "workgroup-size-x", "workgroup-size-y")
SMALL = replace(
    WEB, kind="integrated", limits={**WEB.limits, **dict.fromkeys((f"max-compute-{name}" for name in NAMES), 128)}
)

#: body, types and shapes of x, w and r, threads of the largest workgroup on a device without that limit
GRAPHS = {
    "transposed": ("y = Transpose<perm = [1, 0]>(x)", [(96, 64)], 256),
    "elementwise": ("y = Relu(x)", [(1024, 1024)], 256),
    "sum": ("y = ReduceSum(x)", [(1, 100_000)], 256),
    "softmax": ("y = Softmax(x)", [(4, 5000)], 256),
    "largest": ("y = ArgMax<axis = 1>(x)", [(1, 100_000)], 256),
    "recurrent": ("s, y = RNN<hidden_size = 100>(x, w, r)", [(3, 1, 20), (1, 100, 20), (1, 100, 100)], 256),
    "product": ("y = MatMul(x, w)", [(512, 256), (256, 512)], None),
    "row times matrix": ("y = MatMul(x, w)", [(1, 4096), (4096, 512)], None),
    "attention": ("t = MatMul(x, w) s = Softmax(t) y = MatMul(s, r)", [(1, 64), (64, 700), (700, 64)], None),
}


def _largest(profile, text: str, shapes) -> int:
    feeds = {name: np.zeros(shape, np.float32) for name, shape in zip("xwr", shapes)}
    inputs = ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in feeds.items())
    kind = "int64" if "ArgMax" in text else "float"
    head = '<ir_version: 8, opset_import: ["" : 17]> g '
    model = onnx.parser.parse_model(f"{head}({inputs}) => ({kind}[...] y) {{ {text} }}".replace("[...]", ""))
    plan = compile_for(model, feeds, profile)
    return max(int(np.prod(kernel.workgroup)) for kernel in plan.kernels)


@pytest.mark.parametrize("name", GRAPHS)
def test_workgroups_fit(name: str) -> None:
    text, shapes, elsewhere = GRAPHS[name]
    assert _largest(SMALL, text, shapes) <= 128
    if elsewhere is not None:
        assert _largest(replace(WEB, kind="integrated"), text, shapes) == elsewhere
