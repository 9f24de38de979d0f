"""Decoders of onnxruntime-genai's kinds: sliding windows, and heads that compute the last row's logits alone.

Covers: shaderloom/generate/decoder, shaderloom/generate/folder, compiler/frontend/next_token.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from shaderloom import Generator
from shaderloom.runtime.plan.errors import InputError

TOKENS, CONTEXT, WINDOW = 50, 300, 7
DECODER = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (int64[batch, s] input_ids, int64[batch, total] attention_mask,
    float[batch, 1, past, 16] past_key, float[batch, 1, past, 16] past_value)
    => (float[batch, ROWS, 50] logits, float[batch, 1, total, 16] present_key,
        float[batch, 1, total, 16] present_value) {
  k = Gather(table, input_ids)
  v = Gather(values, input_ids)
  sum = ReduceSum<keepdims = 0>(attention_mask, one)
  less = Sub(sum, one)
  lengths = Cast<to = 6>(less)
  shape = Shape(attention_mask)
  count = Gather<axis = 0>(shape, one)
  total_length = Cast<to = 6>(count)
  q = MatMul(k, wq)
  a, present_key, present_value = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1,
    local_window_size = WINDOW, do_rotary = 1>(q, k, v, past_key, past_value, lengths, total_length, cosines, sines)
  PRUNE
  logits = MatMul(chosen, head)
}"""
PRUNED, WHOLE = "chosen = Gather<axis = 1>(a, last)", "chosen = Identity(a)"
NAMES = {f"{kind}_{part}": name % part for part in ("key", "value")
         for kind, name in (("past", "past_key_values.0.%s"), ("present", "present.0.%s"))}  # fmt: skip


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def model(window: int, pruned: bool, *, has_window_cache: bool = False) -> onnx.ModelProto:
    text = DECODER.replace("ROWS", "1" if pruned else "s").replace("WINDOW", str(window))
    decoder = onnx.parser.parse_model(text.replace("PRUNE", PRUNED if pruned else WHOLE))
    if has_window_cache:
        (attention,) = (node for node in decoder.graph.node if node.op_type == "GroupQueryAttention")
        attention.attribute.append(onnx.helper.make_attribute("sliding_window_cache", 1))
    angles = np.arange(CONTEXT)[:, None] / 100 ** (np.arange(8) / 8)
    arrays = {"table": normal(TOKENS, 16), "values": normal(TOKENS + 1, 16)[1:], "wq": normal(16, 32),
              "head": normal(32, TOKENS), "one": np.array([1]), "last": np.array([-1]),
              "cosines": np.cos(angles).astype(np.float32), "sines": np.sin(angles).astype(np.float32)}  # fmt: skip
    decoder.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    for names in (each for node in decoder.graph.node for each in (node.input, node.output)):
        names[:] = [NAMES.get(name, name) for name in names]
    for port in (*decoder.graph.input, *decoder.graph.output):
        port.name = NAMES.get(port.name, port.name)
    return decoder


def written(folder: Path, window: int, pruned: bool, *, has_window_cache: bool = False) -> Path:
    onnx.save(model(window, pruned, has_window_cache=has_window_cache), folder / "model.onnx")
    settings: dict[str, Any] = {"context_length": CONTEXT, "decoder": {"filename": "model.onnx"}}
    if has_window_cache:
        slides = {"slide_key_value_cache": False, "slide_inputs": False}
        settings["decoder"]["sliding_window"] = {"window_size": window, "layers": [0], "cache_slack": 0, **slides}
    (folder / "genai_config.json").write_text(json.dumps({"model": settings}))
    return folder


def greedy(path: Path, ids: list[int], count: int) -> list[int]:
    """Return what onnxruntime computes without caches, the whole text at every step."""
    text = list(ids)
    logits = onnx_logits(onnx.load(path / "model.onnx"))
    for _ in range(count):
        text.append(int(logits(text)[-1].argmax()))
    return text[len(ids) :]


def onnx_logits(decoder: onnx.ModelProto) -> Callable[[list[int]], np.ndarray]:
    """Return onnxruntime's logits [tokens, vocabulary] of a text, whose activations stay float32."""
    for node in decoder.graph.node:
        for level in [each for each in node.attribute if each.name == "accuracy_level"]:
            node.attribute.remove(level)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(decoder.SerializeToString(), options, providers=providers)
    has_window_cache = any(
        each.name == "sliding_window_cache" for node in decoder.graph.node for each in node.attribute
    )
    empty = np.zeros((1, 1, WINDOW if has_window_cache else 0, 16), np.float32)
    past = {f"past_key_values.0.{part}": empty for part in ("key", "value")}

    def logits(text: list[int]) -> np.ndarray:
        feeds = {"input_ids": np.array([text]), "attention_mask": np.ones((1, len(text)), np.int64), **past}
        return session.run(["logits"], feeds)[0][0]

    return logits


def drawn(count: int) -> list[int]:
    return np.random.default_rng(count).integers(0, TOKENS, count).tolist()


@pytest.mark.parametrize(("window", "pruned"), [(WINDOW, False), (-1, True), (WINDOW, True)])
def test_tokens_are_those_of_the_whole_text(tmp_path: Path, device: Any, window: int, pruned: bool):
    """Prompts shorter and longer than the window, of padded runs where the head has all rows."""
    written(tmp_path, window, pruned)
    with Generator(tmp_path, device=device, cache=False) as generator:
        for length in (3, 13, 40):
            generator.rewind()
            ids = drawn(length)
            assert generator.generate(ids, max_new_tokens=10, stream=False).tokens == greedy(tmp_path, ids, 10)
        assert generator.plans == 2


def quantised(decoder: onnx.ModelProto, form: str) -> onnx.ModelProto:
    """Return a decoder whose products have weights of 4 bits behind DequantizeLinear, or of 8 in MatMulNBits.

    These have the builder's accuracy_level 4, which lets onnxruntime quantise activations; to the first form it does
    that without being asked.
    """
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in decoder.graph.initializer}
    for node in [node for node in decoder.graph.node if node.op_type == "MatMul"]:
        weights, block = arrays[node.input[1]], 16
        rows, columns = weights.shape
        blocks = weights.reshape(rows // block, block, columns)
        most = 7 if form == "qdq" else 127
        scales = np.abs(blocks).max(1) / most
        codes = np.rint(blocks / scales[:, None]).astype(np.int64).reshape(rows, columns)
        names = [f"{node.input[1]}.{part}" for part in ("codes", "scales")]
        if form == "qdq":
            data = [
                onnx.helper.make_tensor(names[0], onnx.TensorProto.INT4, codes.shape, codes.ravel().tolist()),
                onnx.numpy_helper.from_array(scales.astype(np.float32), names[1]),
            ]
            widened = onnx.helper.make_node("DequantizeLinear", names, [f"{names[0]}.wide"], axis=0, block_size=block)
            decoder.graph.node.insert(0, widened)
            node.input[1] = widened.output[0]
        else:
            stored = (codes.T + 128).astype(np.uint8).reshape(columns, rows // block, block)
            data = [
                onnx.numpy_helper.from_array(stored, names[0]),
                onnx.numpy_helper.from_array(scales.T.astype(np.float32).ravel(), names[1]),
            ]
            product = onnx.helper.make_node(
                "MatMulNBits", [node.input[0], *names], list(node.output), domain="com.microsoft",
                K=rows, N=columns, bits=8, block_size=block, accuracy_level=4,
            )  # fmt: skip
            node.CopyFrom(product)
        decoder.graph.initializer.extend(data)
    del decoder.opset_import[:]
    decoder.opset_import.extend([onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)])
    decoder.ir_version = 10
    return decoder


@pytest.mark.parametrize("form", ["qdq", "8 bits"])
def test_quantised_weights_have_the_tokens_of_float_activations(tmp_path: Path, device: Any, form: str):
    decoder, seen = quantised(model(WINDOW, False), form), []
    onnx.save(decoder, written(tmp_path, WINDOW, False) / "model.onnx")
    reference = onnx_logits(decoder)

    def record(_: Any, logits: np.ndarray) -> np.ndarray:
        seen.append(logits)
        return logits

    with Generator(tmp_path, device=device, cache=False) as generator:
        for length in (1, 20):
            ids, before = drawn(length), len(seen)
            tokens = generator.generate(ids, max_new_tokens=20, processors=[record], stream=False).tokens
            wanted = reference([*ids, *tokens[:-1]])[length - 1 :]
            np.testing.assert_allclose(seen[before:], wanted, rtol=1e-4, atol=1e-4)
            assert tokens == wanted.argmax(-1).tolist()


def test_a_window_and_all_keys_give_other_tokens(tmp_path: Path):
    ids = drawn(40)
    answers = []
    for window in (WINDOW, -1):
        answers.append(greedy(written(tmp_path, window, False), ids, 10))
    assert answers[0] != answers[1]


def test_caches_of_a_window(tmp_path: Path, each_device: Any):
    """What onnxruntime-genai's builder writes for processors of Gemma's layers with windows.

    Padded runs, texts that are rewound to where the window of onnxruntime's cache has gone from, and batches have the
    tokens that this cache gives.
    """
    written(tmp_path, WINDOW, False, has_window_cache=True)
    with Generator(tmp_path, device=each_device, cache=False) as generator:
        for ids in (drawn(3), drawn(40), drawn(40)[:15], [*drawn(40)[:9], 3, 4]):
            assert generator.generate(ids, max_new_tokens=6, stream=False).tokens == greedy(tmp_path, ids, 6)
        batch = generator.generate_batch([drawn(20), drawn(5)], max_new_tokens=4)
        assert [each.tokens for each in batch] == [greedy(tmp_path, drawn(count), 4) for count in (20, 5)]


def test_a_full_context_is_an_error_before_anything_runs(tmp_path: Path, device: Any):
    with Generator(written(tmp_path, WINDOW, True), device=device, cache=False) as generator:
        with pytest.raises(InputError, match="exceed the length of 300"):
            generator.generate(drawn(CONTEXT), stream=False)
        with pytest.raises(InputError, match="exceed the length of 300"):
            generator.generate(drawn(CONTEXT - 4), max_new_tokens=5, stream=False)
        assert (generator.tokens, generator.plans) == ((), 0)
        result = generator.generate(drawn(CONTEXT - 4), stream=False)
        assert (len(result.tokens), result.statistics.ended_by) == (4, "length")
        assert result.tokens == greedy(tmp_path, drawn(CONTEXT - 4), 4)


@pytest.mark.parametrize(("lengths", "pruned"), [((40, 21, 19), True), ((3, 20, 1), True), ((3, 20, 1), False)])
def test_batches_of_unequal_prompts(tmp_path: Path, device: Any, lengths: tuple[int, ...], pruned: bool):
    """A head that computes the last row alone takes no padding: the ends of short prompts are computed again."""
    path, prompts = written(tmp_path, WINDOW, pruned), [drawn(length) for length in lengths]
    with Generator(path, device=device, cache=False) as generator:
        batch = generator.generate_batch(prompts, max_new_tokens=8)
        assert [each.tokens for each in batch] == [greedy(path, ids, 8) for ids in prompts]
