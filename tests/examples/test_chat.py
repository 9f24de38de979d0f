"""The chat demo: a trained model answers as float32 weights do."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from examples.chat.model import SMOLLM2, smollm2_folder
from examples.chat.runtimes import answer, answer_with_onnxruntime
from examples.ocr.fetch import ModelUnavailableError, fetch_model
from shaderloom import Generator

from ..support.environments import absent
from ..support.llama_reference import LlamaReference
from ..support.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = [
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "List three colours.",
    "What is 12 times 12?",
    "Translate 'good morning' into Spanish.",
    "Explain gravity to a child.",
    "def fibonacci(n):",
    "Name a famous painter, and one of his works.",
    "Who wrote Hamlet?",
    "Give me a recipe for pancakes.",
    "What is the largest planet?",
    "Summarise the plot of Romeo and Juliet.",
    "How do bees make honey?",
    "Wie heißt die Hauptstadt von Österreich?",
    "¿Qué es la fotosíntesis?",
    "Write a SQL query that counts rows of a table.",
    "Tell me a joke about computers.",
    "1, 1, 2, 3, 5, 8, what comes next?",
    "Explain the difference between TCP and UDP.",
    "🙂 What does this mean?",
]
#: Difference of two logits that are a tie; the largest one of ours to the reference's is 9e-5
MARGIN = 5e-4


@pytest.fixture(scope="module")
def smollm2() -> Path:
    try:
        return smollm2_folder()
    except ModelUnavailableError as error:
        absent(str(error))


def onnx_logits(folder: Path, ids: list[int]) -> np.ndarray:
    """Return onnxruntime's logits [tokens, vocabulary] of one text, in a run without caches."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    caches = [port for port in session.get_inputs() if port.name.startswith("past")]
    feeds = {port.name: np.zeros((1, port.shape[1], 0, port.shape[3]), np.float32) for port in caches}
    feeds |= {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
    return session.run(["logits"], feeds)[0][0]


@pytest.mark.parametrize(
    ("prompts", "count"),
    [pytest.param(8, 32, marks=pytest.mark.slow), pytest.param(20, 64, marks=pytest.mark.soak)],
)
def test_greedy_answers_are_those_of_float32_weights(smollm2: Path, device: Any, prompts: int, count: int):
    """Every token is the one of both references behind the same text, but for ties: numpy's, and onnxruntime's."""
    reference = LlamaReference.read(fetch_model(SMOLLM2))
    ties = 0
    with Generator(smollm2, device=device, cache=False) as generator:
        for question in QUESTIONS[:prompts]:
            ids = generator.encode([{"role": "user", "content": question}])
            tokens = generator.generate(ids, max_new_tokens=count, stream=False).tokens
            text = [*ids, *tokens[:-1]]
            for computed in (reference.logits(text), onnx_logits(smollm2, text)):
                logits = computed[len(ids) - 1 :]
                behind = logits.max(-1) - logits[np.arange(len(tokens)), tokens]
                assert behind.max() <= MARGIN, (question, tokens)
                ties += int((behind > 0).sum())
        assert generator.plans <= 3
    assert ties <= prompts * count // 128


@pytest.mark.parametrize(
    ("prompts", "count"),
    [pytest.param(4, 32, marks=pytest.mark.slow), pytest.param(20, 64, marks=pytest.mark.soak)],
)
def test_drafts_of_the_prompt_change_no_token(smollm2: Path, device: Any, prompts: int, count: int):
    """Texts that begin to repeat a question for the fourth time; greedy, and drawn."""
    with Generator(smollm2, device=device, cache=False) as generator:
        accepted = 0
        for place, question in enumerate(QUESTIONS[:prompts]):
            lines = generator.encode("\n".join([question] * 4))
            ids = lines[: -len(lines) // 8]
            options: dict[str, Any] = {"max_new_tokens": count, "stream": False}
            if place % 2:
                options |= {"temperature": 0.3, "seed": place}
            wanted = generator.generate(ids, **options).tokens
            generator.rewind(len(ids) - 1)
            result = generator.generate(ids, prompt_lookup_num_tokens=10, **options)
            assert result.tokens == wanted, question
            accepted += result.statistics.accepted_tokens
        assert accepted > 2 * prompts
        assert generator.plans <= 4


@pytest.mark.slow
def test_both_runtimes_answer_alike(smollm2: Path, device: Any):
    with Generator(smollm2, device=device, cache=False) as generator:
        pieces: list[str] = []
        ids = generator.encode([{"role": "user", "content": QUESTIONS[0]}])
        ours = answer(generator, ids, 12, pieces.append)
    theirs = answer_with_onnxruntime(smollm2, ids, len(ours.tokens))
    assert theirs is not None
    assert ours.tokens == theirs.tokens
    assert "Paris" in "".join(pieces)


@pytest.mark.slow
def test_the_program(smollm2: Path, device: Any):
    command = [sys.executable, "-m", "examples.chat", QUESTIONS[0], "--tokens", "10", "--device", device.name]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=True)
    assert "Paris" in result.stdout
    assert "tokens/s" in result.stdout
    assert "better choice" in result.stdout


@pytest.mark.slow
def test_requests_are_answered_together_as_one_by_one(smollm2: Path, device: Any):
    """Three in two slots, of which one is drawn."""
    options: list[dict[str, Any]] = [{}, {"temperature": 0.7, "top_p": 0.9, "seed": 3}, {}]
    with Generator(smollm2, device=device, cache=False) as generator:
        prompts = [generator.encode([{"role": "user", "content": question}]) for question in QUESTIONS[:3]]
        single = [generator.generate(ids, max_new_tokens=10, stream=False, **own) for ids, own in zip(prompts, options)]
        scheduler = generator.scheduler(slots=2, queue=3)
        done = threading.Event()
        asked = [generator.request(ids, done.set, max_new_tokens=10, **own) for ids, own in zip(prompts, options)]
        scheduler.submit(asked)
        while not all(request.is_done for request in asked):
            assert done.wait(PATIENCE)
            done.clear()
        scheduler.close()
    assert [request.text for request in asked] == [answer.text for answer in single]
