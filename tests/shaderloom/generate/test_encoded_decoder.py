"""Texts of models with an encoder, in folders as optimum writes them: the tokens of onnxruntime's steps.

Covers: shaderloom/generate/encoded_decoder, shaderloom/generate/decoder_runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from shaderloom import Generator
from shaderloom.generate.decoder import CHUNKS, DecoderForm
from shaderloom.generate.encoded_decoder import EncodedForm, first_size
from shaderloom.generate.folder import ModelFolder
from shaderloom.runtime.plan.errors import InputError, UnsupportedError

from ...support.models import filled_model

START, END, CONTEXT = 3, 2, 64
CONFIG = {
    "is_encoder_decoder": True,
    "model_type": "whisper",
    "d_model": 64,
    "decoder_attention_heads": 4,
    "max_target_positions": CONTEXT,
    "decoder_start_token_id": START,
    "eos_token_id": END,
}


def write_whisper_folder(folder: Path) -> Path:
    """Write a folder of the shape of Whisper's: an encoder of sound, and a merged decoder."""
    (folder / "onnx").mkdir()
    (folder / "onnx" / "encoder_model.onnx").symlink_to(filled_model("whisper_encoder"))
    (folder / "onnx" / "decoder_model_merged.onnx").symlink_to(filled_model("whisper_decoder_merged"))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whisper_folder(tmp_path_factory.mktemp("whisper"))


@pytest.fixture(scope="module")
def speaker(whisper: Path, device: Any) -> Iterator[Generator]:
    with Generator(whisper, device=device, cache=False) as opened:
        yield opened


class Reference:
    """The same folder with onnxruntime: every step reads the whole text without caches."""

    def __init__(self, folder: Path) -> None:
        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(str(folder / "onnx" / name), providers=["CPUExecutionProvider"])
            for name in ("encoder_model.onnx", "decoder_model_merged.onnx")
        )

    def logits(self, features: np.ndarray, text: list[int]) -> np.ndarray:
        """Return those of the last token, [vocabulary]."""
        (hidden,) = self._encoder.run(None, {"input_features": features})
        caches = {
            port.name: np.zeros((1, 4, 0, 16), np.float32)
            for port in self._decoder.get_inputs()
            if port.name.startswith("past")
        }
        feeds = {"input_ids": np.array([text]), "encoder_hidden_states": hidden, "use_cache_branch": np.array([False])}
        return self._decoder.run(["logits"], feeds | caches)[0][0, -1]

    def greedy(self, features: np.ndarray, ids: list[int], count: int) -> list[int]:
        text = list(ids)
        for _ in range(count):
            text.append(int(self.logits(features, text).argmax()))
            if text[-1] == END:
                break
        return text[len(ids) :]


@pytest.fixture(scope="module")
def reference(whisper: Path) -> Reference:
    return Reference(whisper)


def sound(seed: int) -> np.ndarray:
    """Return noise whose bands have means of their own, or else no two sounds would differ for the decoder."""
    draw = np.random.default_rng(seed)
    means, noise = draw.normal(scale=20, size=(1, 16, 1)), draw.standard_normal((1, 16, 3000))
    return (means + noise).astype(np.float32)


def drawn(count: int) -> list[int]:
    return [START, *np.random.default_rng(count).integers(4, 512, count - 1).tolist()]


def spoken(speaker: Generator, ids: list[int], heard: int | None, count: int, **options: Any) -> list[int]:
    inputs = None if heard is None else {"input_features": sound(heard)}
    return speaker.generate(ids, encoder_inputs=inputs, max_new_tokens=count, stream=False, **options).tokens


@pytest.mark.parametrize(
    "length", [4, pytest.param(1, marks=pytest.mark.slow), pytest.param(19, marks=pytest.mark.slow)]
)
def test_greedy_tokens_are_those_of_steps_without_caches(speaker: Generator, reference: Reference, length: int):
    ids = drawn(length)
    assert spoken(speaker, ids, length, 8) == reference.greedy(sound(length), ids, 8)


def test_logits_are_those_of_what_was_heard_last(speaker: Generator, reference: Reference):
    """Also in forks, behind rewound tokens, and without anything new to hear."""
    ids, heard = drawn(5), []

    def compare(seed: int) -> Any:
        def processor(text: Any, logits: np.ndarray) -> np.ndarray:
            wanted = reference.logits(sound(seed), list(text))
            np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-5)
            heard.append(wanted)
            return logits

        return processor

    spoken(speaker, ids, 1, 2, processors=[compare(1)])
    with speaker.fork() as fork:
        spoken(speaker, ids, 2, 2, processors=[compare(2)])
        spoken(fork, [*ids[:3], 7, 8], None, 2, processors=[compare(1)])
    spoken(speaker, ids[:4], None, 1, processors=[compare(2)])
    assert np.abs(heard[0] - heard[2]).max() > 1e-2, "the sounds make a difference"


@pytest.mark.slow
def test_draws_are_repeated_by_their_seed(speaker: Generator):
    first = spoken(speaker, drawn(2), 1, 6, temperature=2.0, seed=3)
    assert spoken(speaker, drawn(2), 1, 6, temperature=2.0, seed=3) == first
    assert spoken(speaker, drawn(2), 1, 6, temperature=2.0, seed=4) != first


@pytest.mark.slow
def test_drivers_give_the_same_tokens(whisper: Path, each_device: Any, reference: Reference):
    with Generator(whisper, device=each_device, cache=False) as generator:
        assert spoken(generator, drawn(3), 4, 5) == reference.greedy(sound(4), drawn(3), 5)


@pytest.mark.parametrize("on_processor", [True, False])
def test_what_is_read_first_is_padded_where_that_takes_less(on_processor: bool):
    """Runs behind the first one have one token: padding pays for more than six, and for most of 128."""
    wanted = (1, 5, 6, 16, 27, 28, 46, 47, 128, 200)
    sizes = [first_size(CHUNKS, each, on_processor=on_processor) for each in wanted]
    assert sizes == [1, 1, 16, 16, 16, *([16, 16] if on_processor else [128, 128]), 128, 128, 128]
    assert [first_size((1, 128), each, on_processor=on_processor) for each in (1, 17, 38)] == [1, 1, 128]


def test_shapes_of_what_the_encoder_reads(whisper: Path, translator: Path):
    form = EncodedForm(ModelFolder.read(whisper), None, False)
    assert form.encoder_shapes(7, {}) == {"input_features": (1, 16, 3000)}
    assert form.encoder_shapes(7, {"input_features": (1, 16, 100)}) == {"input_features": (1, 16, 100)}
    of_text = EncodedForm(ModelFolder.read(translator), None, False).encoder_shapes(7, {})
    assert of_text == {"input_ids": (1, 7), "attention_mask": (1, 7)}


def test_an_answer_begins_with_the_tokens_of_the_folder(speaker: Generator):
    assert spoken(speaker, [], 5, 3) == spoken(speaker, [START], 5, 3)
    assert speaker.tokens[0] == START


def test_what_the_encoder_reads_is_checked_before_anything_runs(whisper: Path, device: Any, folder: Path):
    with Generator(whisper, device=device, cache=False) as generator:
        two = np.concatenate([sound(0), sound(1)])
        for wrong in (None, {}, {"features": sound(0)}, {"input_features": two}):
            with pytest.raises(InputError):
                generator.generate([START], encoder_inputs=wrong)
        with pytest.raises(InputError, match="exceed the length"):
            generator.generate(drawn(CONTEXT), encoder_inputs={"input_features": sound(0)})
        assert generator.plans == 0
    with Generator(folder, device=device, cache=False) as generator, pytest.raises(InputError, match="no encoder"):
        generator.generate([4], encoder_inputs={"input_features": sound(0)})


def test_what_needs_a_decoder_alone_refuses_an_encoder(whisper: Path, speaker: Generator):
    with pytest.raises(UnsupportedError, match="encoder"):
        DecoderForm(ModelFolder.read(whisper), None, False)
    with pytest.raises(UnsupportedError, match="encoder"):
        speaker.generate_batch([[START]])


TEXT_ENCODER = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[batch, s] input_ids, int64[batch, s] attention_mask) => (float[batch, s, 64] last_hidden_state) {
  last_hidden_state = Gather(table, input_ids)
}"""


def branch_of(merged: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Return one side of a merged decoder as a model, with logits that depend on a mask of the encoder, too."""
    (choice,) = merged.graph.node
    body = next(each.g for each in choice.attribute if each.name == name)
    is_later = name == "then_branch"
    for node in body.node:
        node.output[:] = [f"{output}/raw" if output == "logits" else output for output in node.output]
    mask = [
        onnx.helper.make_node("Cast", ["encoder_attention_mask"], ["float_mask"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("ReduceSum", ["float_mask"], ["mask_count"]),
        onnx.helper.make_node("Mul", ["mask_count", "mask_weights"], ["mask_rows"]),
        onnx.helper.make_node("Add", ["logits/raw", "mask_rows"], ["logits"]),
    ]
    nodes = [*body.node, *mask]
    read = {each for node in nodes for each in node.input}
    weights = np.random.default_rng(1).standard_normal(512).astype(np.float32)
    initializers = [*merged.graph.initializer, onnx.numpy_helper.from_array(weights, "mask_weights")]
    inputs = [port for port in merged.graph.input if port.name in read]
    inputs.append(onnx.helper.make_tensor_value_info("encoder_attention_mask", onnx.TensorProto.INT64, ["batch", "e"]))
    outputs = [port for port in merged.graph.output if not (is_later and ".encoder." in port.name)]
    graph = onnx.helper.make_graph(nodes, name, inputs, outputs, [each for each in initializers if each.name in read])
    return onnx.helper.make_model(graph, opset_imports=merged.opset_import, ir_version=merged.ir_version)


def write_translator_folder(folder: Path) -> Path:
    """Write a folder of the shape of T5's: an encoder of text, and two decoders."""
    for file, side in (("decoder_model", "else_branch"), ("decoder_with_past_model", "then_branch")):
        onnx.save(branch_of(onnx.load(filled_model("whisper_decoder_merged")), side), folder / f"{file}.onnx")
    encoder = onnx.parser.parse_model(TEXT_ENCODER)
    table = np.random.default_rng(2).standard_normal((512, 64)).astype(np.float32) * 5
    encoder.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    onnx.save(encoder, folder / "encoder_model.onnx")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_translator_folder(tmp_path_factory.mktemp("translator"))


def translated(folder: Path, ids: list[int], start: list[int], count: int) -> list[int]:
    """Return greedy tokens behind ``start``, by onnxruntime's steps without caches."""
    encoder, first = (
        onnxruntime.InferenceSession(str(folder / f"{name}_model.onnx"), providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    )
    mask = np.ones((1, len(ids)), np.int64)
    (hidden,) = encoder.run(None, {"input_ids": np.array([ids]), "attention_mask": mask})
    text = list(start)
    while len(text) < len(start) + count and END not in text[len(start) :]:
        inputs = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask}
        (logits,) = first.run(["logits"], {"input_ids": np.array([text]), **inputs})
        text.append(int(logits[0, -1].argmax()))
    return text[len(start) :]


def test_texts_into_texts_with_two_decoders(translator: Path, device: Any):
    encoder, first = (
        onnxruntime.InferenceSession(str(translator / f"{name}_model.onnx"), providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    )
    seen: list[np.ndarray] = []

    def compare(feeds: dict[str, np.ndarray]) -> Any:
        (hidden,) = encoder.run(None, feeds)
        inputs = {"encoder_hidden_states": hidden, "encoder_attention_mask": feeds["attention_mask"]}

        def processor(text: Any, logits: np.ndarray) -> np.ndarray:
            (wanted,) = first.run(["logits"], {"input_ids": np.array([text]), **inputs})
            np.testing.assert_allclose(logits, wanted[0, -1], rtol=1e-4, atol=1e-5)
            seen.append(wanted[0, -1])
            return logits

        return processor

    with Generator(translator, device=device, cache=False) as generator:
        for ids, mask in (([9, 8, 7, 6, 5], [1] * 5), ([300, 20, 4, 4], [1] * 4), ([300, 20, 4, 4], [1, 0, 1, 1])):
            feeds = {"input_ids": np.array([ids]), "attention_mask": np.array([mask])}
            options: dict[str, Any] = {"max_new_tokens": 4, "stream": False, "processors": [compare(feeds)]}
            if all(mask):  # the prompt is the encoder's, all of which is valid
                result = generator.generate(ids, **options)
            else:
                result = generator.generate(encoder_inputs=feeds, **options)
            assert (len(result.tokens), result.statistics.prompt_tokens) == (4, 1)
    for one, other in ((0, 4), (4, 8)):
        assert np.abs(seen[one] - seen[other]).max() > 1e-2, "texts and masks make a difference"
