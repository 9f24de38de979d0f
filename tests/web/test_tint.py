"""Chrome's shader compiler, Tint, accepts what naga accepts: it is stricter about control flow and constants.

So does the runner's guard, which looks closer than Python's at texts that are plain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import onnx
import pytest

from shaderloom.runtime.bundle.format import web_feature
from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile

from ..compiler.kernels.test_attention_ranges import cached_attention
from ..compiler.planning import test_stored_ranges
from ..support.cases import all_cases
from ..support.golden import FOLDER
from ..support.kernels import compile_kernels
from ..support.programs import parse
from ..support.running import compile_for
from .chromium import Page

#: What decides which templates and tiles a kernel gets
PROFILES = {
    "web": WEB,
    "software": replace(WEB, kind="cpu"),
    "subgroups": replace(WEB, kind="cpu", features=frozenset({"subgroup"}), subgroup_size=4),
}

#: Texts that are checked in one call of the page
BATCH = 100

CHECK = """async (codes, pipelines) => {
  globalThis.device ??= await (async () => {
    const adapter = await navigator.gpu.requestAdapter();
    return adapter.requestDevice({ requiredFeatures: ["subgroups"].filter((name) => adapter.features.has(name)) });
  })();
  const { requireBounded } = await import("/shaderloom/expansion.js");
  return Promise.all(codes.map(async (code) => {
    try {
      requireBounded(code, "the kernel");
    } catch (error) {
      return [error.message];
    }
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ code });
    const scope = device.popErrorScope();
    const { messages } = await module.getCompilationInfo();
    const errors = messages.filter(({ type }) => type === "error");
    const refused = errors.map(({ lineNum, message }) => `${lineNum}: ${message}`);
    const error = await scope;
    if (error && !refused.length) refused.push(error.message);
    if (pipelines && !refused.length) {
      await device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: "main" } })
        .catch((reason) => refused.push(reason.message));
    }
    return refused;
  }));
}"""


def refusals(page: Page, shaders: Mapping[str, str], *, pipelines: bool = False) -> dict[str, list[str]]:
    """What Tint says against each shader, by the shader's name; those that it accepts are left out."""
    names = list(shaders)
    told = {}
    for start in range(0, len(names), BATCH):
        part = names[start : start + BATCH]
        results = page.call(CHECK, [shaders[name] for name in part], pipelines)
        told |= {name: messages for name, messages in zip(part, results, strict=True) if messages}
    return told


def with_features(wgsl: str, features: Collection[str]) -> str:
    """Return a shader with the directive of Chrome's extension for subgroups, if that is among its ``features``."""
    return f"enable {web_feature('subgroup')};\n{wgsl}" if "subgroup" in features else wgsl


def kernels_of_cases(profile: DeviceProfile) -> dict[str, str]:
    """Every kernel that the cases of the operators need, as Chrome gets it, by the case and template."""
    texts: dict[str, str] = {}
    for operator in all_cases():
        _, made, _ = compile_kernels(operator.model(), operator.feeds, profile)
        for kernel, _ in made:
            texts.setdefault(
                with_features(kernel.wgsl, kernel.features), f"{operator.name} {kernel.template} {kernel.id}"
            )
    return {name: text for text, name in texts.items()}


def grown_attention() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A query over keys and values of n rows."""
    model = parse("""g (float[1, 1, 8] q, float[1, n, 8] k, float[1, n, 8] v) => (float[1, 1, 8] y) {
        t = Transpose<perm = [0, 2, 1]>(k)
        scores = MatMul(q, t)
        w = Softmax(scores)
        y = MatMul(w, v)
    }""")
    rows = np.zeros((1, 300, 8), np.float32)
    return model, {"q": rows[:, :1], "k": rows, "v": rows}


def open_reduction() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Rows of n numbers."""
    model = parse("g (float[4, n] x) => (float[4, n] y, float[4, n] z) {"
                  "y = Softmax(x)  axis = Constant<value = int64 {1}>()  z = CumSum(x, axis) }")  # fmt: skip
    return model, {"x": np.zeros((4, 3000), np.float32)}


def test_golden_shaders_become_pipelines(blank):
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted((FOLDER / "wgsl").glob("*.wgsl"))}
    assert texts
    shaders = {name: with_features(text, ["subgroup"] if "subgroup" in text else []) for name, text in texts.items()}
    assert refusals(blank, shaders, pipelines=True) == {}


@pytest.mark.parametrize("name", PROFILES)
def test_kernels_of_every_operator_are_accepted(blank, name):
    shaders = kernels_of_cases(PROFILES[name])
    assert len(shaders) > 500
    assert refusals(blank, shaders) == {}


@pytest.mark.parametrize("name", ["web", "software"])
def test_loops_over_ranges_of_keys_are_uniform(blank, name):
    """Lengths that a run knows bound loops with barriers."""
    texts = {}
    for queries in (1, 3, 20):
        model, feeds = cached_attention((90, 27), queries, 400, local_window_size=30)
        plan = compile_for(model, feeds, PROFILES[name])
        texts |= {kernel.id: kernel.wgsl for kernel in plan.kernels if kernel.template.startswith("attention")}
    assert len(texts) == 3 and all("keys_begin" in text for text in texts.values())
    assert refusals(blank, texts) == {}


@pytest.mark.parametrize("name", PROFILES)
def test_loops_over_declared_sizes_are_uniform(blank, name):
    """Rows of caches that grow, and reductions over an open axis, bound loops with barriers."""
    grown, texts = grown_attention(), {}
    for model, feeds in (grown, open_reduction()):
        plan = compile_for(model, feeds, PROFILES[name], dynamic={"n": (1, 4000)})
        texts |= {f"{kernel.template} {kernel.id}": kernel.wgsl for kernel in plan.kernels if "symbols" in kernel.wgsl}
    assert any("workgroupBarrier" in text for text in texts.values())
    assert refusals(blank, {name: with_features(text, ["subgroup"] if "subgroup" in text else [])
                            for name, text in texts.items()}) == {}  # fmt: skip


def test_refusals_are_found(blank):
    """What naga lets through shows here: a barrier that not every thread reaches, and a constant that is not finite."""
    barrier = """
        var<workgroup> shared_value: f32;
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
          if (y[i] > 0.0) { workgroupBarrier(); }
          y[i] = shared_value;
        }"""
    infinite = """
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1) fn main() { y[0] = bitcast<f32>(0x7f800000u); }"""
    told = refusals(blank, {"barrier": barrier, "infinite": infinite})
    assert set(told) == {"barrier", "infinite"}
    assert "uniform" in told["barrier"][0]


@pytest.mark.parametrize("name", PROFILES)
def test_kernels_that_store_ranges_are_accepted(blank, name):
    """All threads of a workgroup meet behind a function from which some return early."""
    shaders = {}
    for case in test_stored_ranges.PRODUCERS:
        plan = compile_for(*test_stored_ranges.make(case), PROFILES[name])
        shaders |= {
            f"{case} {kernel.template}": with_features(kernel.wgsl, kernel.features)
            for kernel in plan.kernels
            if "store_range" in kernel.wgsl
        }
    assert len(shaders) >= len(test_stored_ranges.PRODUCERS)
    assert refusals(blank, shaders) == {}
