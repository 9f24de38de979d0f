"""Text generated in a page: the tokens of a float64 reference and of Python, sampled ones too.

Covers: runtime/web/generate.js.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.chat.model import SMOLLM2, smollm2_folder
from examples.ocr.fetch import ModelUnavailableError, fetch_model
from shaderloom import Generator
from shaderloom.convert.gguf_decoder import convert_gguf
from shaderloom.generate.bundling import compile_generator
from shaderloom.generate.sampling import Sampling, choose

from ..examples.test_chat import MARGIN, QUESTIONS
from ..shaderloom.generate.test_encoded_decoder import START as ENCODED_START
from ..shaderloom.generate.test_encoded_decoder import (
    Reference,
    translated,
    write_translator_folder,
    write_whisper_folder,
)
from ..shaderloom.generate.test_growing import drawn as growing_prompt
from ..shaderloom.generate.test_growing import reference as growing_reference
from ..shaderloom.generate.test_growing import write_optimum_folder
from ..support.bundles import copy_bundle, seal
from ..support.environments import absent
from ..support.llama_reference import LlamaReference
from ..support.tiny_gguf import END, TOKENS, TinyGguf, write_tiny_gguf
from .chromium import Page, PageError

OPEN = """
globalThis.opened ??= import("/generate.js").then(({ loadGenerator }) => loadGenerator("/bundle/"));
globalThis.generate = async (ids, options) => {
  const generation = (await opened).generate(ids, options);
  for await (const piece of generation) throw new Error(`text without words: ${piece}`);
  return { tokens: generation.tokens, ...generation.statistics };
};
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyGguf:
    written = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "t.gguf", kind="Q8_0", tied=False)
    convert_gguf(written.path, written.path.parent / "folder")
    return written


@pytest.fixture(scope="module")
def bundle(tiny: TinyGguf) -> Path:
    path = tiny.path.parent / "b"
    compile_generator(tiny.path.parent / "folder", path, max_length=520, target="web-software")
    return path


@pytest.fixture
def page(open_bundle: Any, bundle: Path) -> Iterator[Page]:
    opened = open_bundle(bundle)
    opened.evaluate(OPEN)
    return opened


def drawn(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, len(TOKENS), count).tolist()


def until_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(END) + 1] if END in tokens else tokens


def test_a_conversation_has_the_tokens_of_the_reference(page: Page, tiny: TinyGguf):
    """Prompts of one token, of chunks with and without padding, and beyond the first capacity of 256 rows."""
    for length in (1, 21, 130, 300):
        ids = drawn(length, length)
        answer = page.call("generate", ids, {"maxNewTokens": 5})
        assert answer["tokens"] == until_end(tiny.greedy(ids, 5))
        assert answer["promptTokens"] == length
    again = [*ids, *answer["tokens"], *drawn(4, 1)]
    answer = page.call("generate", again, {"maxNewTokens": 3})
    assert answer["tokens"] == until_end(tiny.greedy(again, 3))
    assert answer["reusedTokens"] == len(again) - 5
    assert page.evaluate("opened.then((generator) => generator.rewind(10))") == 10
    assert page.call("generate", ids, {"maxNewTokens": 2})["reusedTokens"] == 10


def test_a_length_of_one_capacity(open_bundle: Any, tiny: TinyGguf, tmp_path: Path):
    """The range of the caches' rows has one size, which no plan has a symbol for."""
    compile_generator(tiny.path.parent / "folder", tmp_path / "b", max_length=60, target="web-software")
    page = open_bundle(tmp_path / "b")
    page.evaluate(OPEN)
    ids = drawn(21, 1)
    assert page.call("generate", ids, {"maxNewTokens": 4})["tokens"] == until_end(tiny.greedy(ids, 4))
    with pytest.raises(PageError, match="length of 60"):
        page.call("generate", drawn(58, 1), {"maxNewTokens": 4})


def test_draws_are_those_of_python(page: Page, bundle: Path, device: Any):
    ids = drawn(12, 3)
    cases: list[dict[str, Any]] = [
        {"temperature": 1.0, "seed": 5},
        {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "seed": 1 << 40},
        {"temperature": 0.7, "top_k": 100, "repetition_penalty": 1.4, "seed": 2},
        {"temperature": 1e-300, "top_k": 100, "top_p": 0.9, "seed": 2},
        {"repetition_penalty": 1.8},
    ]
    names = {"top_k": "topK", "top_p": "topP", "min_p": "minP", "repetition_penalty": "repetitionPenalty"}
    with Generator(bundle, device=device) as generator:
        for options in cases:
            ours = generator.generate(ids, max_new_tokens=6, stream=False, **options).tokens
            own = {names.get(name, name): value for name, value in options.items()}
            answer = page.call("generate", ids, {"maxNewTokens": 6, **own})
            assert answer["tokens"] == ours, options
            assert page.call("generate", ids, {"maxNewTokens": 6, **own})["tokens"] == ours


def test_the_choice_on_the_host_is_that_of_python(blank: Page):
    rng = np.random.default_rng(4)
    script = """async (logits, seen, options, position) => {
      const { choose, Sampling } = await import("/shaderloom/sampling.js");
      return choose(Float32Array.from(logits), new Set(seen), new Sampling(options), position);
    }"""
    for seed in range(20):
        logits = (rng.standard_normal(300) * 3).astype(np.float32)
        seen = rng.integers(0, 300, 20).tolist()
        sampling = Sampling(1.1, 100, 0.95, 0.001, 1.3, seed << 33)
        options = {"temperature": 1.1, "topK": 100, "topP": 0.95, "minP": 0.001, "repetitionPenalty": 1.3}
        found = blank.call(script, logits.tolist(), seen, {**options, "seed": seed << 33}, 17)
        assert found == choose(logits, np.isin(np.arange(300), seen), sampling, 17)


def test_an_answer_is_left_and_another_one_begun(page: Page, tiny: TinyGguf):
    ids, other = drawn(9, 2), drawn(14, 8)
    reason = page.call("""async (ids) => {
      const controller = new AbortController();
      const generator = await opened;
      const generation = generator.generate(ids, { signal: controller.signal });
      const iterator = generation[Symbol.asyncIterator]();
      const ended = iterator.next();
      while (generation.tokens.length < 2) await new Promise((resolve) => setTimeout(resolve));
      controller.abort(new Error("enough"));
      return ended.then(() => "ended", ({ message }) => message);
    }""", ids)  # fmt: skip
    assert reason == "enough"
    both = page.call("""async (ids, other) => {
      const left = generate(ids, {});
      const answer = generate(other, { maxNewTokens: 4 });
      return [(await left).endedBy, (await answer).tokens];
    }""", ids, other)  # fmt: skip
    assert both == ["", until_end(tiny.greedy(other, 4))]


def test_caches_that_grow(open_bundle: Any, tmp_path: Path):
    """A model of optimum's form, whose runs give longer caches and take no padding."""
    compile_generator(write_optimum_folder(tmp_path / "optimum"), tmp_path / "b", max_length=200, target="web-software")
    page = open_bundle(tmp_path / "b")
    page.evaluate(OPEN)
    for ids in (growing_prompt(1), growing_prompt(20), growing_prompt(147), growing_prompt(147)[:30]):
        assert page.call("generate", ids, {"maxNewTokens": 5})["tokens"] == growing_reference(ids, 5)
    assert page.call("generate", growing_prompt(147)[:20], {"maxNewTokens": 1})["reusedTokens"] == 19
    with pytest.raises(PageError, match="length of 200"):
        page.call("generate", growing_prompt(199), {"maxNewTokens": 2})


def test_texts_into_texts(open_bundle: Any, tmp_path: Path, device: Any):
    """A folder of the shape of T5's: an encoder of text, and two decoders; draws are those of Python."""
    folder = write_translator_folder(tmp_path)
    compile_generator(folder, tmp_path / "b", target="web-software")
    page = open_bundle(tmp_path / "b")
    page.evaluate(OPEN)
    for ids in ([9, 8, 7, 6, 5], drawn(40, 2)):
        answer = page.call("generate", ids, {"maxNewTokens": 6})
        assert answer["tokens"] == translated(folder, ids, [ENCODED_START], 6)
        assert answer["promptTokens"] == 1
    start = [ENCODED_START, *drawn(20, 3)]
    other = page.call("""async (ids, start) => {
      const feed = { data: BigInt64Array.from(ids, BigInt), dims: [1, ids.length] };
      return generate(start, { maxNewTokens: 4, encoderInputs: { input_ids: feed } });
    }""", [300, 20, 7], start)  # fmt: skip
    assert other["tokens"] == translated(folder, [300, 20, 7], start, 4)
    with Generator(tmp_path / "b", device=device) as generator:
        ours = generator.generate([300, 20, 7], max_new_tokens=5, temperature=1.3, seed=4, stream=False).tokens
    assert page.call("generate", [300, 20, 7], {"maxNewTokens": 5, "temperature": 1.3, "seed": 4})["tokens"] == ours
    with pytest.raises(PageError, match="reads input_ids, attention_mask, not sound"):
        page.evaluate("generate([3], { encoderInputs: { sound: new Float32Array(4) } })")


def test_speech(open_bundle: Any, tmp_path: Path):
    """A folder of the shape of Whisper's, with a merged decoder; also without anything new to hear."""
    reference = Reference(write_whisper_folder(tmp_path))
    compile_generator(tmp_path, tmp_path / "b", target="web-software")
    page = open_bundle(tmp_path / "b")
    page.evaluate(OPEN)
    speak = """async (start, means, options) => {
      const features = new Float32Array(16 * 3000).map((_, at) => means[Math.floor(at / 3000)] + Math.sin(at * at));
      const inputs = means.length ? { encoderInputs: { input_features: { data: features, dims: [1, 16, 3000] } } } : {};
      return { ...await generate(start, { ...options, ...inputs }), features: [...features] };
    }"""
    with pytest.raises(PageError, match="reads input_features, not nothing"):
        page.call(speak, [], [], {"maxNewTokens": 2})
    for start in ([], [ENCODED_START, 7, 9, 11]):
        means = np.random.default_rng(len(start)).normal(scale=20, size=16).tolist()
        answer = page.call(speak, start, means, {"maxNewTokens": 6})
        features = np.array(answer["features"], np.float32).reshape(1, 16, 3000)
        assert answer["tokens"] == reference.greedy(features, start or [ENCODED_START], 6)
    again = [*start[:3], 20]
    answer = page.call(speak, again, [], {"maxNewTokens": 5})
    assert answer["tokens"] == reference.greedy(features, again, 5) and answer["reusedTokens"] == 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's model as a bundle for software adapters."""
    try:
        folder = smollm2_folder()
    except ModelUnavailableError as error:
        absent(str(error))
    path = tmp_path_factory.mktemp("trained") / "b"
    compile_generator(folder, path, max_length=512, target="web-software")
    return path


@pytest.mark.parametrize(
    ("prompts", "count"),
    [pytest.param(1, 24, marks=pytest.mark.slow), pytest.param(20, 64, marks=pytest.mark.soak)],
)
def test_greedy_answers_are_those_of_float32_weights(
    open_bundle: Any, trained: Path, device: Any, prompts: int, count: int
):
    """Every token of a trained model is the one of the reference behind the same text, but for ties."""
    page = open_bundle(trained)
    page.evaluate(OPEN)
    reference = LlamaReference.read(fetch_model(SMOLLM2))
    ties = 0
    with Generator(trained, device=device) as generator:
        texts = [generator.encode([{"role": "user", "content": question}]) for question in QUESTIONS[:prompts]]
    for ids in texts:
        tokens = page.call("generate", ids, {"maxNewTokens": count})["tokens"]
        logits = reference.logits([*ids, *tokens[:-1]])[len(ids) - 1 :]
        behind = logits.max(-1) - logits[np.arange(len(tokens)), tokens]
        assert behind.max() <= MARGIN, (ids, tokens)
        ties += int((behind > 0).sum())
    assert ties <= prompts * count // 128


def test_what_is_asked_wrongly(page: Page):
    for prompt, options, reason in (
        (drawn(510, 1), {"maxNewTokens": 20}, "exceed the bundle's length of 520"),
        ([len(TOKENS)], {}, f"no token {len(TOKENS)}"),
        ([], {}, "no tokens"),
        ("the", {}, "words"),
        ([3], {"temperature": -1}, "temperature is a number from 0"),
        ([3], {"topK": 1.5}, "topK is an integer"),
        ([3], {"stop": [""]}, "none of them empty"),
    ):
        with pytest.raises(PageError, match=reason):
            page.call("generate", prompt, options)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("assets/generation.json", {"context": "4"}, "context"),
        ("assets/generation.json", {"ends": [-1]}, "ends"),
        ("assets/generation.json", {"past": ["p.%d.%d"]}, "one %d each"),
        ("assets/generation.json", {"present": ["__proto__%d"]}, "no output continues"),
        ("models/choice.json", {"files": {"plan-extra.json": {"size": 0, "sha256": []}}}, "listed|otherwise"),
    ],
)
def test_settings_are_not_trusted(
    open_bundle: Any, bundle: Path, tmp_path: Path, name: str, change: dict[str, Any], reason: str
):
    path = copy_bundle(bundle, tmp_path / "b")
    (path / name).write_text(json.dumps({**json.loads((path / name).read_text()), **change}))
    seal(path)
    page = open_bundle(path)
    page.evaluate(OPEN)
    with pytest.raises(PageError, match=f"ShaderloomError.*({reason})"):
        page.call("generate", [3], {"maxNewTokens": 2, "temperature": 1})


def test_caches_that_never_grow_are_refused(open_bundle: Any, bundle: Path, tmp_path: Path):
    """A capacity of no rows is within the rules of plans; doubling it would not end."""
    path = copy_bundle(bundle, tmp_path / "b")
    for file in (path / "manifest.json", *path.glob("plan-*.json")):
        content = json.loads(file.read_text())
        if file.name == "manifest.json":
            content["dynamic"]["capacity"]["low"] = 0
        for symbol in content.get("symbols", ()):
            symbol["low"] = 0
        file.write_text(json.dumps(content))
    seal(path)
    page = open_bundle(path)
    page.evaluate(OPEN)
    with pytest.raises(PageError, match="begin with no rows"):
        page.call("generate", [3], {"maxNewTokens": 2})


def test_options_without_effect_are_refused(page: Page):
    for name, reason in (("promptLookupNumTokens", "no drafts"), ("jsonSchema", "no grammars"), ("top_k", "topK")):
        with pytest.raises(PageError, match=f"no option '{name}'.*{reason}"):
            page.call("generate", [3], {name: 4, "maxNewTokens": 1})
    assert page.evaluate("generate([3], { maxNewTokens: 1, topK: undefined, other: undefined })")["newTokens"] == 1


def test_a_bundle_that_generates_no_text(open_bundle: Any, static_bundle: Path):
    page = open_bundle(static_bundle)
    page.evaluate(OPEN)
    with pytest.raises(PageError, match="--generate"):
        page.call("generate", [3], {})
    with pytest.raises(PageError, match=r"models/voice\.json"):
        page.evaluate("import('/shaderloom.js').then(({ load }) => load('/bundle/', { model: 'voice' }))")
