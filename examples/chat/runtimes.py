"""Greedy tokens of one folder under Shaderloom and under onnxruntime, and the time that they take."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shaderloom import Generator


@dataclass
class Measured:
    """What a runtime did.  Times are in seconds, from the tokens of the prompt on."""

    runtime: str
    tokens: list[int] = field(default_factory=list)
    first_token: float = 0.0
    others: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens behind the first by their time; 0 without any."""
        return (len(self.tokens) - 1) / self.others if self.others else 0.0


def answer(generator: Generator, ids: list[int], count: int, show: Callable[[str], None]) -> Measured:
    """Answer with Shaderloom; pieces of the text go to ``show`` as they come."""
    generation = generator.generate(ids, max_new_tokens=count)
    for piece in generation:
        show(piece)
    facts = generation.statistics
    return Measured("shaderloom", generation.tokens, facts.first_token_seconds, facts.decode_seconds)


def answer_with_onnxruntime(folder: Path, ids: list[int], count: int) -> Measured | None:
    """Compute as many tokens with onnxruntime's CPU provider; None if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    caches = [port for port in session.get_inputs() if port.name.startswith("past")]
    feeds = {port.name: np.zeros((1, port.shape[1], 0, port.shape[3]), np.float32) for port in caches}
    measured, new, length = Measured("onnxruntime, CPU"), list(ids), len(ids)
    start = time.perf_counter()
    while len(measured.tokens) < count:
        small = {"input_ids": np.array([new]), "attention_mask": np.ones((1, length), np.int64)}
        logits, *present = session.run(names, small | feeds)
        new = [int(logits[0, -1].argmax())]
        measured.tokens += new
        feeds = {name.replace("present", "past_key_values"): array for name, array in zip(names[1:], present)}
        length += 1
        if len(measured.tokens) == 1:
            measured.first_token = time.perf_counter() - start
            start = time.perf_counter()
    measured.others = time.perf_counter() - start
    return measured
