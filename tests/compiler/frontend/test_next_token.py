"""``logits="token"``: the form of a decoder that text is generated with.

Covers: compiler/frontend/next_token, compiler/frontend/branch_choice, compiler/frontend/logits_form,
compiler/frontend/proto_builder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import shaderloom
from shaderloom.compiler.frontend.proto_builder import nodes_within
from shaderloom.runtime.plan.errors import UnsupportedError

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> '
#: Attention that extends its caches in place, with lengths from a mask and an embedding of positions
GROUPED = """g (int64[batch, s] input_ids, int64[batch, total] attention_mask, int64[batch, s] position_ids,
    float[batch, 1, past, 8] past_k, float[batch, 1, past, 8] past_v)
    => (float[batch, s, 32] logits, float[batch, 1, total, 8] present_k, float[batch, 1, total, 8] present_v) {
  tokens = Gather(table, input_ids)
  places = Gather(position_table, position_ids)
  e = Add(tokens, places)
  sum = ReduceSum<keepdims = 0>(attention_mask, one)
  less = Sub(sum, one)
  lengths = Cast<to = 6>(less)
  shape = Shape(attention_mask)
  count = Gather<axis = 0>(shape, one)
  total_length = Cast<to = 6>(count)
  q = MatMul(e, wq)
  a, present_k, present_v = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1>(
    q, e, e, past_k, past_v, lengths, total_length)
  logits = MatMul(a, wide)
}"""
#: Attention that returns longer caches; the scores of masked keys are low
GROWING = """g (int64[batch, s] input_ids, int64[batch, total] attention_mask, bool[1] use_cache_branch,
    float[batch, 1, past, 8] past_k) => (float[batch, s, 32] scores, float[batch, 1, all, 8] present_k) {
  e = Gather(table, input_ids)
  k = Unsqueeze(e, one)
  present_k = Concat<axis = 2>(past_k, k)
  turned = Transpose<perm = [0, 1, 3, 2]>(present_k)
  p = MatMul(k, turned)
  float_mask = Cast<to = 1>(attention_mask)
  missing = Sub(float_mask, float_one)
  low = Mul(missing, large)
  bias = Unsqueeze(low, middle)
  masked = Add(p, bias)
  w = Softmax(masked)
  a = MatMul(w, present_k)
  flag = Cast<to = 1>(use_cache_branch)
  flagged = Mul(a, flag)
  joined = Squeeze(flagged, one)
  scores = MatMul(joined, head)
}"""
SHAPES = {"table": (50, 8), "position_table": (600, 8), "wq": (8, 16), "wide": (16, 32), "head": (8, 32)}
CONSTANTS = {
    "one": np.array([1]),
    "middle": np.array([1, 2]),
    "float_one": np.float32(1),
    "large": np.float32(1e4),
}


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def parse(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD + text)
    read = {name for node in nodes_within(model.graph) for name in node.input}
    arrays: dict[str, Any] = {name: values(*shape) for name, shape in SHAPES.items()} | CONSTANTS
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items() if name in read
    )
    return model


def opened(text: str, device: Any, dynamic: dict[str, tuple[int, ...]]) -> shaderloom.InferenceSession:
    return shaderloom.InferenceSession(
        parse(text), device=device, cache=False, options={"logits": "token"}, dynamic=dynamic
    )


def expected_rows(text: str, tokens: list[int]) -> np.ndarray:
    """The logits of all positions of one sequence without a past."""
    session = onnxruntime.InferenceSession(parse(text).SerializeToString(), providers=["CPUExecutionProvider"])
    feeds: dict[str, np.ndarray] = {
        "input_ids": np.array([tokens]),
        "attention_mask": np.ones((1, len(tokens)), np.int64),
        "position_ids": np.arange(len(tokens))[None],
        "use_cache_branch": np.array([True]),
        "past_k": np.zeros((1, 1, 0, 8), np.float32),
        "past_v": np.zeros((1, 1, 0, 8), np.float32),
    }
    names = {port.name for port in session.get_inputs()}
    return session.run(None, {name: array for name, array in feeds.items() if name in names})[0][0]


def drawn(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 50, count).tolist()


def test_a_cache_in_place_serves_rows_of_unequal_length(each_device):
    """Two sequences of 5 and 3 tokens, padded on the right, then tokens one by one; padding is overwritten."""
    sequences, later = [drawn(5, 1), drawn(3, 2)], [drawn(4, 3), drawn(4, 4)]
    wanted = [expected_rows(GROUPED, [*prompt, *more]) for prompt, more in zip(sequences, later)]
    cache = {name: np.full((2, 1, 16, 8), np.nan, np.float32) for name in ("past_k", "past_v")}
    with opened(GROUPED, each_device, {"capacity": (16, 64, 16)}) as session:
        padded = np.array([prompt + [0] * (5 - len(prompt)) for prompt in sequences])
        feeds = {"input_ids": padded, "sequence_ends": np.array([5, 5]), "logits_rows": np.array([[4], [2]])}
        for count in range(5):
            token, logits, *present = session.run(None, feeds | cache)
            for row, prompt in enumerate(sequences):
                row_wanted = wanted[row][len(prompt) - 1 + count]
                np.testing.assert_allclose(logits[row, 0], row_wanted, rtol=1e-4, atol=1e-4)
                assert token[row, 0] == row_wanted.argmax()
            if count == 4:
                break
            cache = dict(zip(("past_k", "past_v"), present))
            ends = np.array([len(prompt) + count + 1 for prompt in sequences])
            ids = np.array([[more[count]] for more in later])
            feeds = {"input_ids": ids, "sequence_ends": ends, "logits_rows": np.array([[0], [0]])}
        assert len(session.stats.keys) == 2


def test_a_cache_that_grows(device):
    tokens = drawn(9, 5)
    cache = np.zeros((1, 1, 0, 8), np.float32)
    with opened(GROWING, device, {"past": (0, 64)}) as session:
        assert [port.name for port in session.get_inputs()] == ["input_ids", "past_k", "sequence_ends", "logits_rows"]
        assert [port.name for port in session.get_outputs()] == ["token", "logits", "present_k"]
        for start, end in ((0, 4), (4, 8), (8, 9)):
            feeds = {"input_ids": np.array([tokens[start:end]]), "past_k": cache}
            feeds |= {"sequence_ends": np.array([end]), "logits_rows": np.array([[end - start - 1]])}
            token, logits, cache = session.run(None, feeds)
            wanted = reference_of_growing(tokens[:end], end - start)
            np.testing.assert_allclose(logits[0, 0], wanted, rtol=1e-4, atol=1e-4)
            assert token[0, 0] == wanted.argmax()


def reference_of_growing(tokens: list[int], new: int) -> np.ndarray:
    """The last logits of GROWING in float64; its tokens attend to all tokens of their run."""
    keys = values(50, 8).astype(np.float64)[tokens]
    scores = keys[-1] @ keys.T
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ keys @ values(8, 32)


@pytest.mark.parametrize(
    ("changed", "to", "tensor"),
    [
        ("int64[batch, s] position_ids", "int64[3, batch, s] position_ids", "position_ids"),
        ("int64[batch, s] position_ids,", "int64[batch, s] position_ids, float[1] bias,", "bias"),
        (", past_v, lengths", ", past_k, lengths", "past_v"),
    ],
)
def test_what_is_no_known_decoder_is_refused_by_name(changed: str, to: str, tensor: str):
    model = parse(GROUPED.replace(changed, to))
    with pytest.raises(UnsupportedError) as caught:
        shaderloom.InferenceSession(model, cache=False, options={"logits": "token"}, providers=["cpu"]).get_inputs()
    assert caught.value.tensor == tensor


#: A decoder of encoded rows, whose two sides an If on a flag chooses
MERGED = """g (int64[batch, s] input_ids, float[batch, encoded, 8] encoder_hidden_states,
    float[batch, 1, past, 8] past_0_decoder_key, float[batch, 1, e, 8] past_0_encoder_key, bool[1] use_cache_branch)
    => (float[batch, s, 32] logits, float[batch, 1, all, 8] present_0_decoder_key,
        float[batch, 1, e, 8] present_0_encoder_key) {
  logits, present_0_decoder_key, present_0_encoder_key = If(use_cache_branch) <
    then_branch = later () => (float[batch, s, 32] later_logits, float[batch, 1, all, 8] keys,
                               float[batch, 1, e, 8] present_0_encoder_key) <int64[1] later_axis = {1}> {
      e1 = Gather(table, input_ids)
      k1 = Unsqueeze(e1, later_axis)
      keys = Concat<axis = 2>(past_0_decoder_key, k1)
      present_0_encoder_key = Identity(past_0_encoder_key)
      own1 = ReduceSum<keepdims = 0>(keys, middle)
      read1 = ReduceSum<keepdims = 0>(present_0_encoder_key, middle)
      sum1 = Add(own1, read1)
      row1 = Unsqueeze(sum1, later_axis)
      joined1 = Mul(e1, row1)
      later_logits = MatMul(joined1, head)
    },
    else_branch = first () => (float[batch, s, 32] first_logits, float[batch, 1, all, 8] first_keys,
                               float[batch, 1, e, 8] present_0_encoder_key) <int64[1] first_axis = {1}> {
      e2 = Gather(table, input_ids)
      first_keys = Unsqueeze(e2, first_axis)
      present_0_encoder_key = Unsqueeze(encoder_hidden_states, first_axis)
      sum2 = ReduceSum<keepdims = 0>(encoder_hidden_states, first_axis)
      row2 = Unsqueeze(sum2, first_axis)
      joined2 = Mul(e2, row2)
      first_logits = MatMul(joined2, head)
    } >
}"""


def merged(text: str) -> onnx.ModelProto:
    """Return the model with names that have dots, which the text form lacks."""
    content = parse(text).SerializeToString()
    for name in (f"{kind}_0_{part}_key" for kind in ("past", "present") for part in ("decoder", "encoder")):
        content = content.replace(name.encode(), name.replace("_", ".").encode())
    return onnx.load_from_string(content)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_merged_decoder_comes_apart_into_its_sides(device: Any, is_first: bool):
    """Each reads what it needs alone, and gives what onnxruntime's run of the whole gives."""
    model, names = merged(MERGED), ["logits", "present.0.decoder.key"]
    caches = {"past.0.decoder.key": values(1, 1, 4, 8), "past.0.encoder.key": values(1, 1, 6, 8)}
    feeds: dict[str, Any] = {"input_ids": np.array([drawn(3, 1)]), "encoder_hidden_states": values(1, 6, 8), **caches}
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {**feeds, "use_cache_branch": np.array([not is_first])}
    )
    options = {"logits": "first-token" if is_first else "token"}
    with shaderloom.InferenceSession(model, device=device, cache=False, options=options) as session:
        read = {"input_ids", "sequence_ends", "logits_rows", *(["encoder_hidden_states"] if is_first else caches)}
        assert {port.name for port in session.get_inputs()} == read
        given = ["token", *names, *(["present.0.encoder.key"] if is_first else [])]
        assert [port.name for port in session.get_outputs()] == given
        small = {"sequence_ends": np.array([3 if is_first else 7]), "logits_rows": np.array([[0, 2]])}
        token, logits, *present = session.run(
            None, {name: value for name, value in (feeds | small).items() if name in read}
        )
    np.testing.assert_allclose(logits, wanted[0][:, [0, 2]], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(token, wanted[0][:, [0, 2]].argmax(2))
    for ours, theirs in zip(present, wanted[1:]):
        np.testing.assert_array_equal(ours, theirs)


def test_a_merged_decoder_whose_flag_is_read_elsewhere_is_refused():
    text = MERGED.replace("  logits, present", "  flag = Cast<to = 1>(use_cache_branch)\n  logits, present")
    with pytest.raises(UnsupportedError, match="one If alone") as caught:
        shaderloom.InferenceSession(merged(text), cache=False, options={"logits": "token"}, providers=["cpu"])
    assert caught.value.tensor == "use_cache_branch"


def test_a_model_without_caches_is_refused():
    text = (
        "g (int64[batch, s] input_ids) => (float[batch, s, 8] logits) { e = Gather(table, input_ids) logits = Relu(e) }"
    )
    with pytest.raises(UnsupportedError, match="no caches"):
        shaderloom.InferenceSession(parse(text), cache=False, options={"logits": "token"}, providers=["cpu"])
