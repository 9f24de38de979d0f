"""Activations that products round to bytes: one kernel for each tensor, whoever reads it.

Results of products are compared in ``test_byte_gemm``.

Covers: compiler/kernels/products/round_groups, compiler/ops/internal/byte_products.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

from bench.decoders import Decoder, Run, write_decoder
from shaderloom.compiler.ops.internal.byte_products import rounded_groups
from shaderloom.compiler.reference.interpreter import run_graph

from ...support.passes import lower_model
from ...support.running import compile_for
from ...support.sessions import leave_groups_out
from ..codegen.test_text_size import H200
from .test_byte_gemm import coarse, grouped
from .test_packed_gemm import nbits

LAYERS = 2


@pytest.fixture(autouse=True)
def without_groups(monkeypatch):
    leave_groups_out(monkeypatch)


@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("group", [32, 128])
def test_words_of_the_reference(stride, group):
    """Bytes of a word are ``stride`` terms apart, the first in the low bits; the scales follow all words."""
    x = np.random.default_rng(group).standard_normal((3, 2 * group), np.float32)
    words, scales = np.split(rounded_groups(x, group, stride), [x.size // 4])
    codes = np.zeros(x.size)
    for number, word in enumerate(words.tolist()):
        first = number // stride * 4 * stride + number % stride
        codes[first : first + 4 * stride : stride] = np.frombuffer(word.to_bytes(4, "little"), np.int8)
    found = codes.reshape(-1, group) * scales.view(np.float32)[:, None].astype(np.float64)
    np.testing.assert_allclose(found.reshape(x.shape), grouped(x, group), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("bits", "block"), [(2, 32), (4, 64), (8, 128)])
def test_the_interpreter_agrees(bits, block):
    case = coarse(nbits((20, 2 * block), 12, block, bits))
    graph = lower_model(case.model, {"x": case.x.shape}, H200).graph
    assert any(node.op == "RoundGroups" for node in graph.nodes)
    (found,) = run_graph(graph, {"x": case.x})
    expected = grouped(case.x, block) @ case.weight
    assert np.abs(found - expected).max() <= 2e-6 * np.abs(expected).max()


def test_kernels_of_a_prompt(tmp_path):
    """Gate and up read the same words; a layer rounds what four products read, with one kernel each."""
    decoder = Decoder("small", 256, 640, LAYERS, 4, 2, 64, 1024, is_tied=True, has_bias=True)
    model = onnx.load(write_decoder(decoder, tmp_path, positions=128))
    run = Run("prompt", 96, 0, 96)
    feeds = dict(run.feeds())
    for number in range(decoder.layers):
        feeds |= {f"past.{number}.{what}": run.cache(decoder) for what in ("key", "value")}
    calls = Counter(call.label for call in compile_for(model, feeds, H200).calls)
    rounded = sum(count for label, count in calls.items() if "RoundGroups" in label)
    products = sum(count for label, count in calls.items() if "ByteMatMul" in label)
    assert (rounded, products) == (4 * LAYERS + 1, 5 * LAYERS + 1), calls
