"""``logits="last"``: the row of the last valid position, in sessions, programs, bundles and on the cpu.

Covers: compiler/frontend/last_logits.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.runtime.plan.errors import InputError, UnsupportedError

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> '
IDS = "int64[batch, sequence] input_ids"
LOGITS = "float[batch, sequence, 32] logits"
DECODER = "e = Gather(table, input_ids) h = Tanh(e) p = MatMul(h, head) logits = Add(p, bias)"
BY_MASK = f"g ({IDS}, int64[batch, total] attention_mask) => ({LOGITS}) {{ {DECODER} }}"
PLAIN = f"g ({IDS}) => ({LOGITS}) {{ {DECODER} }}"
GROUPED = f"""g ({IDS}, int64[batch, total] mask, float[batch, 1, 16, 8] past_k, float[batch, 1, 16, 8] past_v)
    => ({LOGITS}, float[batch, 1, 16, 8] present_k, float[batch, 1, 16, 8] present_v) {{
  e = Gather(table, input_ids)
  sum = ReduceSum<keepdims = 0>(mask, one)
  less = Sub(sum, one)
  lengths = Cast<to = 6>(less)
  shape = Shape(mask)
  count = Gather<axis = 0>(shape, one)
  total_length = Cast<to = 6>(count)
  q = MatMul(e, wq)
  a, present_k, present_v = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1>(
    q, e, e, past_k, past_v, lengths, total_length)
  logits = MatMul(a, wide)
}}"""
CHOSEN = """g (float[1, rows, 8] x) => (float[1, left, 32] logits) {
  q = MatMul(x, wq) m = ReduceMean<axes = [0, 2], keepdims = 0>(q) zero = Sub(m, m) chosen = Greater(m, zero)
  e = Compress<axis = 1>(x, chosen) h = Tanh(e) logits = MatMul(h, head) }"""
SHAPES = {"table": (50, 8), "head": (8, 32), "bias": (32,), "wq": (8, 16), "wide": (16, 32)}


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def parse(text: str, *, opset: int = 17) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD.replace("17", str(opset)) + text)
    read = {name for node in model.graph.node for name in node.input}
    arrays = {name: values(*shape) for name, shape in SHAPES.items()} | {"one": np.array([1])}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in arrays.items() if name in read
    )
    return model


def ids(batch: int, sequence: int) -> np.ndarray:
    return np.random.default_rng(sequence).integers(0, 50, (batch, sequence))


def rows(tokens: np.ndarray) -> np.ndarray:
    """The logits of DECODER in float64."""
    hidden = np.tanh(values(50, 8).astype(np.float64)[tokens])
    return hidden @ values(8, 32).astype(np.float64) + values(32)


def session(text: str, device, logits: str = "last", **more) -> shaderloom.InferenceSession:
    options = shaderloom.SessionOptions()
    options.logits = logits
    return shaderloom.InferenceSession(parse(text), options, device=device, cache=False, **more)


#: masks of five positions, and the last valid ones: padding on the right, on the left, behind a past, and an empty row
MASKS = [
    ([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], [2, 4]),
    ([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], [4, 4]),
    ([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]], [2, 4]),
    ([[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], [4, 0]),
]


def test_mask_says_which_row_is_last(device):
    tokens = ids(2, 5)
    with session(BY_MASK, device) as opened:
        assert opened.get_outputs()[0].shape == ["batch", 1, 32]
        for mask, last in MASKS:
            (logits,) = opened.run(None, {"input_ids": tokens, "attention_mask": np.array(mask)})
            assert logits.shape == (2, 1, 32)
            np.testing.assert_allclose(logits[:, 0], rows(tokens)[[0, 1], last], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dynamic", ["off", {"sequence": (1, 8), "batch": (1, 4)}], ids=["sizes", "declared"])
def test_without_a_mask_the_sequence_ends_with_it(device, dynamic):
    with session(PLAIN, device, dynamic=dynamic) as opened:
        for batch, sequence in ((1, 7), (2, 3), (1, 1)):
            tokens = ids(batch, sequence)
            (logits,) = opened.run(None, {"input_ids": tokens})
            np.testing.assert_allclose(logits, rows(tokens)[:, -1:], rtol=1e-5, atol=1e-6)


def grouped_feeds(case: str) -> tuple[dict[str, np.ndarray], list[int]]:
    """A padded prompt, tokens behind rows of unequal length, and one token; with the last valid rows."""
    sequence, past, lengths, last = {
        "prompt": (5, 0, (3, 5), [2, 4]),
        "later tokens": (2, 6, (5, 8), [1, 1]),
        "token": (1, 4, (3, 5), [0, 0]),
    }[case]
    mask = np.array([[1] * length + [0] * (sequence + past - length) for length in lengths])
    cache = {name: values(2, 1, 16, 8) for name in ("past_k", "past_v")}
    return {"input_ids": ids(2, sequence), "mask": mask, **cache}, last


@pytest.mark.parametrize("case", ["prompt", "later tokens", "token"])
@pytest.mark.parametrize("declared", [pytest.param(False, marks=pytest.mark.slow, id="sizes"), True])
def test_lengths_of_attention_say_which_row_is_last(device, case: str, declared: bool):
    feeds, last = grouped_feeds(case)
    dynamic = {"sequence": (1, 8), "total": (1, 16)} if declared else "off"
    with session(GROUPED, device, "all") as opened:
        wanted, *present = opened.run(None, feeds)
    with session(GROUPED, device, dynamic=dynamic) as opened:
        logits, *found = opened.run(None, feeds)
    np.testing.assert_allclose(logits[:, 0], wanted[[0, 1], last], rtol=1e-5, atol=1e-6)
    for left, right in zip(found, present, strict=True):
        np.testing.assert_array_equal(left, right)


def test_quantised_heads_of_halves_have_the_row(device):
    """The head is MatMulNBits; its products round to halves as those of all rows do."""
    text = f"""g ({IDS}) => (float16[batch, sequence, 32] logits) {{
      e = Gather(table, input_ids) h = Tanh(e)
      logits = com.microsoft.MatMulNBits<K = 32, N = 32, block_size = 32>(h, codes, scales) }}"""
    model = onnx.parser.parse_model(HEAD + text)
    arrays = {
        "table": values(50, 32).astype(np.float16),
        "codes": np.random.default_rng(0).integers(0, 256, (32, 1, 16), np.uint8),
        "scales": np.linspace(0.01, 0.04, 32, dtype=np.float16),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    codes = np.stack([arrays["codes"] & 15, arrays["codes"] >> 4], -1).reshape(32, 32).astype(np.float64) - 8
    tokens = ids(2, 11)
    hidden = np.tanh(arrays["table"].astype(np.float64)[tokens[:, -1:]])
    with shaderloom.InferenceSession(model, device=device, cache=False, options={"logits": "last"}) as opened:
        (logits,) = opened.run(None, {"input_ids": tokens})
    assert logits.dtype == np.float16
    np.testing.assert_allclose(logits, hidden @ (codes.T * arrays["scales"].astype(np.float64)), rtol=2e-3, atol=2e-3)


def test_programs_have_the_row(device):
    """The number of rows is known in the second step alone."""
    x = values(1, 9, 8)
    with session(CHOSEN, device) as opened:
        (logits,) = opened.run(None, {"x": x})
        assert len(opened.stats.steps) > 1
    last = np.flatnonzero((x[0].astype(np.float64) @ values(8, 16)).mean(1) > 0)[-1]
    wanted = np.tanh(x[:, last : last + 1].astype(np.float64)) @ values(8, 32)
    np.testing.assert_allclose(logits, wanted, rtol=1e-5, atol=1e-6)


def test_provider_cpu_has_the_row():
    pytest.importorskip("onnxruntime")
    tokens = ids(2, 5)
    with session(BY_MASK, None, providers=["cpu"]) as opened:
        assert opened.get_outputs()[0].shape == ["batch", 1, 32]
        (logits,) = opened.run(None, {"input_ids": tokens, "attention_mask": np.array(MASKS[0][0])})
    np.testing.assert_allclose(logits[:, 0], rows(tokens)[[0, 1], [2, 4]], rtol=1e-5, atol=1e-6)


def test_bundles_have_the_row(device, tmp_path):
    path = tmp_path / "decoder.shaderbundle"
    options = {"logits": "last"}
    compile_bundle(parse(PLAIN), path, shapes=[{"input_ids": (1, 6)}], target="native", options=options)
    tokens = ids(1, 6)
    with shaderloom.load_bundle(path, device=device) as opened:
        assert opened.get_outputs()[0].shape == ["batch", 1, 32]
        (logits,) = opened.run(None, {"input_ids": tokens})
    np.testing.assert_allclose(logits, rows(tokens)[:, -1:], rtol=1e-5, atol=1e-6)


def test_cache_keeps_both_headers_apart(device, tmp_path):
    file = tmp_path / "decoder.onnx"
    onnx.save(parse(PLAIN), file)
    for logits, size in (("all", "sequence"), ("last", 1), ("all", "sequence")):
        options = shaderloom.SessionOptions()
        options.logits = logits
        with shaderloom.InferenceSession(file, options, device=device, cache=tmp_path / "cache") as opened:
            assert opened.get_outputs()[0].shape == ["batch", size, 32]
            assert opened.run(None, {"input_ids": ids(1, 4)})[0].shape == (1, 4 if logits == "all" else 1, 32)


# -- which output ----------------------------------------------------------------------------------------------------


def test_output_of_another_name_is_the_only_product(device):
    text = PLAIN.replace("logits", "scores").replace(") {", ", float[batch, sequence, 8] h) {", 1)
    with session(text, device) as opened:
        assert [port.shape for port in opened.get_outputs()] == [["batch", 1, 32], ["batch", "sequence", 8]]
        tokens = ids(1, 4)
        scores, hidden = opened.run(None, {"input_ids": tokens})
    np.testing.assert_allclose(scores, rows(tokens)[:, -1:], rtol=1e-5, atol=1e-6)
    assert hidden.shape == (1, 4, 8)


REFUSED = {
    "no product": (PLAIN.replace("logits", "y").replace("Add(p, bias)", "Softmax(p)"), "no outputs of rank 3"),
    "two products": (
        PLAIN.replace("logits", "y").replace(") {", ", float[batch, sequence, 32] p) {", 1),
        "2 outputs of rank 3 are results of a product: y, p",
    ),
    "another rank": (PLAIN.replace("float[batch, sequence, 32]", "float[rows, 32]"), "not declared as"),
    "lengths in a branch": (
        f"""g ({IDS}, bool x) => ({LOGITS}) {{ logits = If(x) <then_branch = b () => (float[1, 1, 32] y) {{
            n = Constant<value_ints = [1]>() m = Cast<to = 6>(n)
            k = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1>(table, table, table, , , m, m)
            y = MatMul(k, head) }}, else_branch = c () => (float[1, 1, 32] y) {{ y = Identity(table) }}> }}""",
        "inside a branch or a loop alone",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_names_the_remedy(device, case: str):
    text, reason = REFUSED[case]
    with pytest.raises(UnsupportedError, match=reason) as raised:
        session(text, device)
    assert "leave logits at 'all'" in str(raised.value)


def test_old_operators_are_refused(device):
    with pytest.raises(UnsupportedError, match="opset 12"):
        shaderloom.InferenceSession(parse(PLAIN, opset=12), device=device, cache=False, options={"logits": "last"})


def test_choices_are_checked():
    with pytest.raises(InputError, match="logits is 'all' or 'last'"):
        shaderloom.SessionOptions().logits = "first"
    with pytest.raises(InputError, match="logits is 'all', 'last', 'token' or 'first-token'"):
        shaderloom.InferenceSession(parse(PLAIN), cache=False, options={"logits": "first"})
