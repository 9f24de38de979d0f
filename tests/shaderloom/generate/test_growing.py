"""Decoders whose runs return longer caches, in a folder as optimum writes them.

Covers: shaderloom/generate/decoder, shaderloom/generate/cache, shaderloom/generate/groups.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from shaderloom import Generator
from shaderloom.runtime.plan.errors import InputError, ModelError, UnsupportedError

from ...support.patience import PATIENCE

TOKENS, SIZE, END = 60, 8, 1
#: One head of attention; scores of later keys and of masked ones are low
DECODER = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[batch, s] input_ids, int64[batch, total] attention_mask, int64[batch, s] position_ids,
    float[batch, 1, past, 8] past_key, float[batch, 1, past, 8] past_value)
    => (float[batch, s, 60] logits, float[batch, 1, total, 8] present_key, float[batch, 1, total, 8] present_value) {
  tokens = Gather(table, input_ids)
  places = Gather(position_table, position_ids)
  e = Add(tokens, places)
  q = Unsqueeze(e, one)
  v = Unsqueeze(tokens, one)
  present_key = Concat<axis = 2>(past_key, q)
  present_value = Concat<axis = 2>(past_value, v)
  turned = Transpose<perm = [0, 1, 3, 2]>(present_key)
  scores = MatMul(q, turned)
  shape = Shape(attention_mask)
  total = Gather(shape, scalar_one)
  keys = Range(scalar_zero, total, scalar_one)
  past_shape = Shape(past_key)
  past_rows = Gather(past_shape, two)
  queries = Slice(keys, past_rows, huge, zero)
  rows = Unsqueeze(queries, last)
  allowed = LessOrEqual(keys, rows)
  valid = Cast<to = 9>(attention_mask)
  valid_rows = Unsqueeze(valid, one)
  both = And(allowed, valid_rows)
  mask = Unsqueeze(both, one)
  masked = Where(mask, scores, low)
  w = Softmax(masked)
  a = MatMul(w, present_value)
  flat = Squeeze(a, one)
  mixed = MatMul(flat, middle)
  h = Tanh(mixed)
  logits = MatMul(h, head)
}"""

#: Positions that the model counts itself
OWN_POSITIONS = """counted = CumSum(attention_mask, scalar_one)
  all_positions = Sub(counted, one)
  ids_shape = Shape(input_ids)
  ids_count = Gather(ids_shape, one)
  ids_start = Neg(ids_count)
  position_ids = Slice(all_positions, ids_start, huge, one)
  tokens = """
TABLE = """end = Unsqueeze(total, zero)
  some = Slice(table_of_all, past_rows, end, zero)
  allowed = Slice(some, zero, end, one)"""

#: Names that the text form of ONNX cannot have
NAMES = {f"past_{part}": f"past_key_values.0.{part}" for part in ("key", "value")}
NAMES |= {f"present_{part}": f"present.0.{part}" for part in ("key", "value")}


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def model(text: str = DECODER) -> onnx.ModelProto:
    decoder = onnx.parser.parse_model(text)
    arrays = {
        "table": values(TOKENS, SIZE),
        "position_table": values(600, SIZE) * 0.5,
        "middle": values(SIZE, 16),
        "head": values(16, TOKENS),
        "one": np.array([1]),
        "last": np.array([-1]),
        "two": np.array([2]),
        "zero": np.array([0]),
        "huge": np.array([1 << 40]),
        "scalar_one": np.array(1),
        "scalar_zero": np.array(0),
        "low": np.float32(-1e9),
    }
    tensors = (onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    decoder.graph.initializer.extend(tensors)
    for node in decoder.graph.node:
        for names in (node.input, node.output):
            names[:] = [NAMES.get(name, name) for name in names]
    for port in (*decoder.graph.input, *decoder.graph.output):
        port.name = NAMES.get(port.name, port.name)
    return decoder


def reference(ids: list[int], count: int) -> list[int]:
    """The most probable tokens, in float64."""
    table, places = values(TOKENS, SIZE).astype(np.float64), values(600, SIZE) * np.float64(0.5)
    text = list(ids)
    for _ in range(count):
        keys = table[text] + places[: len(text)]
        scores = keys @ keys[-1]
        weights = np.exp(scores - scores.max())
        hidden = np.tanh(weights / weights.sum() @ table[text] @ values(SIZE, 16))
        text.append(int((hidden @ values(16, TOKENS)).argmax()))
        if text[-1] == END:
            break
    return text[len(ids) :]


def write_optimum_folder(folder: Path) -> Path:
    (folder / "onnx").mkdir(parents=True)
    onnx.save(model(), folder / "onnx" / "model.onnx")
    config = {"n_positions": 300, "eos_token_id": END, "num_attention_heads": 1, "hidden_size": SIZE}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def optimum_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_optimum_folder(tmp_path_factory.mktemp("optimum"))


@pytest.fixture(scope="module")
def growing(optimum_folder: Path, device: Any) -> Iterator[Generator]:
    with Generator(optimum_folder, device=device, cache=False) as opened:
        yield opened


def drawn(count: int) -> list[int]:
    return np.random.default_rng(count).integers(2, TOKENS, count).tolist()


@pytest.mark.parametrize("length", [1, 2, 20, 147])
def test_tokens_are_those_of_the_reference(growing: Generator, length: int):
    growing.rewind()
    ids = drawn(length)
    assert growing.generate(ids, max_new_tokens=9, stream=False).tokens == reference(ids, 9)


def test_rewinding_and_forks(growing: Generator):
    growing.rewind()
    ids = drawn(25)
    growing.generate(ids, max_new_tokens=4, stream=False)
    with growing.fork() as fork:
        other = [*ids[:12], *drawn(3)]
        result = fork.generate(other, max_new_tokens=5, stream=False)
        assert (result.tokens, result.statistics.reused_tokens) == (reference(other, 5), 12)
    again = growing.generate(ids, max_new_tokens=6, stream=False)
    assert (again.tokens, again.statistics.reused_tokens) == (reference(ids, 6), len(ids) - 1)


def test_draws_without_a_tokenizer(growing: Generator):
    options = {"max_new_tokens": 8, "temperature": 2.0, "seed": 4, "stream": False}
    result = growing.generate(drawn(5), **options)
    assert result.text == ""
    growing.rewind()
    assert growing.generate(drawn(5), **options).tokens == result.tokens


@pytest.mark.parametrize("lengths", [(3, 20, 1), (5, 5)])
def test_batches_are_padded_on_the_left(growing: Generator, lengths: tuple[int, ...]):
    prompts = [drawn(length) for length in lengths]
    for options in ({}, {"temperature": 2.0, "seed": 7}):
        single = [growing.generate(ids, max_new_tokens=7, stream=False, **options).tokens for ids in prompts]
        batch = growing.generate_batch(prompts, max_new_tokens=7, **options)
        assert [each.tokens for each in batch] == single
        assert options or single == [reference(ids, 7) for ids in prompts]


def test_a_batch_that_is_too_long_with_its_padding(growing: Generator):
    with pytest.raises(InputError, match="padded"):
        growing.generate_batch([drawn(200), drawn(3)])


def test_a_table_that_ends_with_the_context(optimum_folder: Path, tmp_path: Path, device: Any):
    """A mask of all positions, of which runs of several tokens cut a part: behind the last ones there is none."""
    cut = DECODER.replace("allowed = LessOrEqual(keys, rows)", TABLE).replace("rows = Unsqueeze(queries, last)", "")
    decoder = model(cut)
    table = onnx.numpy_helper.from_array(np.tri(300, dtype=np.bool_), "table_of_all")
    decoder.graph.initializer.append(table)
    onnx.save(decoder, tmp_path / "model.onnx")
    (tmp_path / "config.json").symlink_to(optimum_folder / "config.json")
    options: dict[str, Any] = {"device": device, "cache": False}
    with Generator(tmp_path, **options) as generator, pytest.raises(UnsupportedError, match="max_length=172"):
        generator.generate(drawn(20), max_new_tokens=3, stream=False)
    with Generator(tmp_path, max_length=172, **options) as generator:
        assert generator.generate(drawn(20), max_new_tokens=3, stream=False).tokens == reference(drawn(20), 3)


def test_a_model_that_takes_no_padding(optimum_folder: Path, tmp_path: Path, device: Any):
    """Its prompts may be of one length."""
    fixed = model(DECODER.replace(", int64[batch, s] position_ids", "").replace("tokens = ", OWN_POSITIONS, 1))
    onnx.save(fixed, tmp_path / "model.onnx")
    (tmp_path / "config.json").symlink_to(optimum_folder / "config.json")
    with Generator(tmp_path, device=device, cache=False) as generator:
        batch = generator.generate_batch([drawn(9), drawn(9)[::-1]], max_new_tokens=4)
        assert [each.tokens for each in batch] == [reference(ids, 4) for ids in (drawn(9), drawn(9)[::-1])]
        with pytest.raises(UnsupportedError, match="no padding"):
            generator.generate_batch([drawn(2), drawn(3)])


def test_caches_that_no_output_continues(optimum_folder: Path, tmp_path: Path, device: Any):
    renamed = model()
    onnx.save(renamed, tmp_path / "model.onnx")
    decoder = {"inputs": {"past_key_names": "past_key_values.%d.key"}, "outputs": {"present_key_names": "new.%d.key"}}
    settings = {"model": {"context_length": 300, "decoder": decoder}}
    (tmp_path / "genai_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError) as caught:
        Generator(tmp_path, device=device, cache=False)
    assert caught.value.tensor == "past_key_values.0.key"


def test_requests_are_answered_in_groups(optimum_folder: Path, device: Any):
    """Prompts of equal and of unequal length, padded on the left; one is cancelled, and no cache is left."""
    prompts = [drawn(length) for length in (3, 3, 1, 20, 7, 290)]
    with Generator(optimum_folder, device=device, cache=False) as generator:
        scheduler = generator.scheduler(slots=3, queue=9)
        done = [threading.Event() for _ in prompts]
        asked = [generator.request(ids, event.set, max_new_tokens=8) for ids, event in zip(prompts, done)]
        scheduler.submit(asked)
        scheduler.cancel(asked[1])
        for place, request in enumerate(asked):
            while place != 1 and not request.is_done:
                assert done[place].wait(PATIENCE)
                done[place].clear()
            assert request.error is None
            assert place == 1 or request.tokens == reference(prompts[place], 8)
        assert (scheduler.nbytes, scheduler.active, scheduler.waiting) == (0, 0, 0)
        scheduler.close()
