"""The chat demo: a trained model answers as float32 weights do."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from examples.chat.model import SMOLLM2, smollm2_folder
from examples.chat.runtimes import answer, answer_with_onnxruntime
from examples.ocr.fetch import ModelUnavailableError, fetch_model
from shaderloom import Generator, InferenceSession, SessionOptions

from ..support.environments import absent
from ..support.llama_reference import LlamaReference
from ..support.patience import PATIENCE
from ..support.sessions import byte_products, leave_groups_out, multiplying_bytes

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
#: What activations of 8 bits may move logits by, of the largest of them: the root mean square, and each.  Few positions
#: are far more sensitive than others, to the last bit of what is rounded
SHARE, LARGEST_SHARE = 0.012, 0.25


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


def with_integer_zeros(folder: Path, target: Path) -> Path:
    """Write a folder's model with zero points uint8, the nearest ones, as products of bytes need them."""
    model = onnx.load(folder / "model.onnx")
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "MatMulNBits" and len(node.input) > 3:
            tensor = tensors[node.input[3]]
            zeros = np.clip(np.rint(onnx.numpy_helper.to_array(tensor)), 0, 15).astype(np.uint8)
            packed = zeros[:, ::2] | zeros[:, 1::2] << 4
            tensor.CopyFrom(onnx.numpy_helper.from_array(packed.ravel(), tensor.name))
    onnx.save(model, target / "model.onnx", save_as_external_data=True, location="model.onnx.data")
    return target


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


@pytest.mark.soak
def test_activations_of_8_bits_change_few_tokens(
    smollm2: Path, tmp_path: Path, device: Any, monkeypatch: pytest.MonkeyPatch
):
    """Each token behind a beginning of an answer that float32 activations give, all in one run of all rows."""
    leave_groups_out(monkeypatch)
    prompts, count, rows = 8, 32, 80
    folder, options = with_integer_zeros(smollm2, tmp_path), SessionOptions()
    options.activations = "int8"
    moved, wanted, equal = [], [], 0
    with (
        Generator(smollm2, device=device, cache=False) as generator,
        InferenceSession(folder / "model.onnx", options, device=multiplying_bytes(device), cache=False) as session,
    ):
        shapes = {port.name: (1, port.shape[1], 0, port.shape[3]) for port in session.get_inputs()[2:]}
        feeds: dict[str, Any] = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        for question in QUESTIONS[:prompts]:
            ids = generator.encode([{"role": "user", "content": question}])
            answered = answer_with_onnxruntime(folder, ids, count)
            assert answered is not None
            text = [*ids, *answered.tokens[:-1]]
            feeds["input_ids"] = np.array([[*text, *text[-1:] * (rows - len(text))]])
            feeds["attention_mask"] = np.ones((1, rows), np.int64)
            (computed,) = session.run(["logits"], feeds)
            answer_rows = slice(len(ids) - 1, len(text))
            logits, exact = computed[0][answer_rows], onnx_logits(folder, text)[answer_rows]
            behind = exact.max(-1) - exact[np.arange(count), logits.argmax(-1)]
            equal += int((behind <= MARGIN).sum())
            moved.append(logits - exact)
            wanted.append(exact)
        assert byte_products(session) == 5 * 30 + 1
    difference, largest = np.abs(moved), np.abs(wanted).max()
    assert np.sqrt(np.square(difference).mean()) <= SHARE * largest
    assert difference.max() <= LARGEST_SHARE * largest
    assert equal >= 0.95 * prompts * count


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
