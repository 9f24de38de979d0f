"""What drivers ask of texts: workgroups of one dimension and, for Mesa's lavapipe, no loop whose bound is computed from
uniforms alone.

Covers: compiler/codegen/render.py, compiler/codegen/hidden_uniforms.py.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile

from ...support.programs import parse
from ...support.running import compile_for
from ...support.sources import ROOT

LAVAPIPE = DeviceProfile(kind="cpu", adapter="llvmpipe (LLVM 15.0.6, 256 bits)")
SWIFTSHADER = DeviceProfile(kind="cpu", adapter="SwiftShader Device (Subzero)")

#: Loops over a dynamic axis: a reduction, a product, running sums, a pool, and recurrent steps
BODIES = {
    "softmax": "y = Softmax<axis = 1>(x)",
    "product": "t = Transpose<perm = [1, 0]>(x)  y = MatMul(t, x)",
    "sums": "y = CumSum(x, zero)",
    "order": "y, i = TopK<axis = 0>(x, four)",
}


@pytest.mark.parametrize("name", BODIES)
def test_loops_over_dynamic_sizes(name) -> None:
    """lavapipe specialises such loops for their bounds, milliseconds in each run; the symbols are read once there."""
    model = parse(f"""g (float[n, m] x) => (float[p, q] y)
        <int64 zero = {{0}}, int64[1] four = {{4}}> {{ {BODIES[name]} }}""")
    feeds = {"x": np.zeros((30, 30), np.float32)}
    lavapipe, *others = [
        [
            kernel.wgsl
            for kernel in compile_for(model, feeds, profile, dynamic={"n": (8, 64), "m": (8, 64)}).kernels
            if "symbols" in kernel.wgsl
        ]
        for profile in (LAVAPIPE, SWIFTSHADER, WEB)
    ]
    assert lavapipe
    for text in lavapipe:
        declaration, read, rest = re.split(
            r"(\n  let zero_of_symbols = i32\(\w+\.z >> 31u\);\n  let sizes_of_main = Symbols\([^\n]*\);)", text
        )
        assert "symbols." in read and "symbols." not in declaration + rest
        assert "sizes.s_" in declaration or "sizes_of_main.s_" in rest
        assert "sizes.s_" not in rest
    assert all("sizes" not in text for texts in others for text in texts)


def test_workgroups_have_one_dimension():
    """lavapipe fills its lanes along the first dimension alone: 1 x 8 threads would take as long as 64."""
    sizes = {
        file.name: re.findall(r"@workgroup_size\((.*?)\)\n", file.read_text(encoding="utf-8"))
        for file in (ROOT / "templates").glob("*/*.wgsl.j2")
    }
    kernels = {name: size for name, size in sizes.items() if size}
    assert len(kernels) > 20
    assert {name: size for name, size in kernels.items() if len(size) != 1 or "," in size[0]} == {}
