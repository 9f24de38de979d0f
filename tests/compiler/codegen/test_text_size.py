"""How much text convolutional networks give a driver to compile.

Covers: compiler/codegen, templates.
"""

from __future__ import annotations

import re
from dataclasses import replace

import onnx
import pytest

from bench.models import MODELS
from shaderloom.runtime.plan.device_profile import DEVICE_FEATURES, LANGUAGE_FEATURES, WEB

from ...support.running import compile_for

#: What an NVIDIA H200 has beyond the defaults
H200 = replace(
    WEB,
    kind="discrete",
    adapter="NVIDIA H200",
    driver="NVIDIA H200 580.159.04",
    features=frozenset((*DEVICE_FEATURES, *LANGUAGE_FEATURES)),
    limits={
        **WEB.limits,
        "max-compute-invocations-per-workgroup": 1024,
        "max-compute-workgroup-size-x": 1024,
        "max-compute-workgroup-size-y": 1024,
        "max-compute-workgroup-storage-size": 49152,
        "max-storage-buffer-binding-size": (1 << 32) - 4,
        "max-buffer-size": 1 << 40,
    },
)
#: Kernels, and thousands of characters of their texts with and without indentation, before kernels were shared
BEFORE = {
    "squeezenet1_1": (41, 222, 194),
    "mobilenet_v2": (64, 281, 248),
    "resnet18": (48, 273, 241),
    "resnet50": (75, 542, 475),
    "efficientnet_b0": (110, 358, 321),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BEFORE)
def test_convolutional_networks_have_half_of_the_kernels_and_a_third_of_the_text(name):
    model = MODELS[name]
    kernels, characters, without_indentation = BEFORE[name]
    plan = compile_for(onnx.load(model.locate()), model.feeds(), H200, verify=False)
    texts = [kernel.wgsl for kernel in plan.kernels]
    assert len(texts) <= kernels / 2
    assert sum(map(len, texts)) <= 1000 * characters / 3
    assert sum(len(re.sub(r"\n +", "\n", text)) for text in texts) <= 1000 * without_indentation / 3
