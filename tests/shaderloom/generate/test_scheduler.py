"""Texts that join and leave a batch between tokens: those of a reference, whatever runs beside them.

Covers: shaderloom/generate/scheduler, shaderloom/generate/slots.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Full
from typing import Any

import numpy as np
import pytest

from shaderloom import Generator
from shaderloom.generate.grammar import TextConstraint
from shaderloom.generate.limited_process import LimitedProcess
from shaderloom.generate.scheduler import Scheduler, TextRequest
from shaderloom.generate.slots import SlotBatch, batch_sizes
from shaderloom.runtime.plan.errors import ClosedError, InputError, InternalError, ShapeError

from ...support.held_steps import held_steps
from ...support.patience import PATIENCE
from ...support.tiny_gguf import END, TOKENS, TinyGguf

SLOTS, QUEUE = 4, 30


def drawn(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng([count, seed]).integers(3, len(TOKENS), count).tolist()


def until_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(END) + 1] if END in tokens else tokens


@pytest.fixture(scope="module")
def scheduler(generator: Generator) -> Iterator[Scheduler]:
    scheduler = generator.scheduler(slots=SLOTS, queue=QUEUE)
    yield scheduler
    scheduler.close()


class Asked:
    """A request, and what there is of it whenever it changes."""

    def __init__(self, generator: Generator, ids: list[int], count: int, **options: Any) -> None:
        self.ids, self.count = ids, count
        self.lengths: list[int] = []
        self._ended, self._begun = threading.Event(), threading.Event()
        self.request: TextRequest = generator.request(ids, self._change, max_new_tokens=count, **options)

    def _change(self) -> None:
        self.lengths.append(len(self.request.tokens))
        self._begun.set()
        if self.request.is_done:
            self._ended.set()

    def begin(self) -> None:
        assert self._begun.wait(PATIENCE)

    def result(self) -> TextRequest:
        assert self._ended.wait(PATIENCE)
        return self.request


def test_sizes_of_batches():
    assert [batch_sizes(most) for most in (1, 2, 6, 8)] == [(1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]


@pytest.mark.parametrize(
    "lengths",
    [(3, 20, 1, 130, 17, 2, 8), pytest.param((3, 140, 1, 17, 40, 2, 260, 8, 5, 30, 129, 1), marks=pytest.mark.slow)],
)
def test_greedy_texts_are_those_of_the_reference(
    generator: Generator, scheduler: Scheduler, tiny: TinyGguf, lengths: tuple[int, ...]
):
    """More requests than slots, prompts of one and several runs, over caches that grow; a third is cancelled."""
    asked = [Asked(generator, drawn(length, place), 3 + place) for place, length in enumerate(lengths)]
    for each in asked:
        scheduler.submit([each.request])
    left = asked[2::3]
    for each in left:
        scheduler.cancel(each.request)
    for each in asked:
        if each not in left:
            request = each.result()
            assert request.tokens == until_end(tiny.greedy(each.ids, each.count))
            assert each.lengths == list(range(1, len(request.tokens) + 1))  # one at a time
            assert request.error is None
    scheduler.submit([(last := Asked(generator, drawn(4), 2)).request])
    last.result()
    assert (scheduler.active, scheduler.waiting) == (0, 0)
    assert all(each.request.is_done for each in left)


def test_drawn_texts_are_those_of_single_prompts(generator: Generator, scheduler: Scheduler):
    """Each has parameters of its own, and texts that end it; one is greedy."""
    options: list[dict[str, Any]] = [
        {"temperature": 1.0, "seed": 1},
        {"temperature": 0.8, "top_k": 20, "seed": 2, "repetition_penalty": 1.3},
        {},
        {"temperature": 1.2, "top_p": 0.8, "min_p": 0.01, "seed": 3},
    ]
    prompts = ["the cat", "the", "in the theatre", "a"]
    single = [generator.generate(text, max_new_tokens=9, stream=False, **each) for text, each in zip(prompts, options)]
    asked = [
        Asked(generator, generator.encode(text), 9 + place, stop=answer.text[4:6] or "none", **each)
        for place, (text, each, answer) in enumerate(zip(prompts, options, single))
    ]
    scheduler.submit([each.request for each in asked])
    for each, answer in zip(asked, single):
        request = each.result()
        count = min(len(request.tokens), len(answer.tokens))
        assert request.tokens[:count] == answer.tokens[:count]
        assert answer.text.startswith(request.text)
        assert request.ended_by in ("stop", "end")


def test_a_prompt_continues_what_is_in_a_slot(generator: Generator, scheduler: Scheduler, tiny: TinyGguf):
    first = Asked(generator, drawn(50, 7), 3)
    scheduler.submit([first.request])
    turn = [*first.ids, *first.result().tokens, *drawn(5, 8)]
    before = scheduler.counters.reused_tokens
    second = Asked(generator, turn, 4)
    scheduler.submit([second.request])
    assert second.result().tokens == until_end(tiny.greedy(turn, 4))
    assert second.request.reused_tokens == scheduler.counters.reused_tokens - before == 52


def test_texts_go_on_while_a_prompt_is_encoded(
    generator: Generator, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
):
    """A process of the tokenizer serves one thread at a time: answers are written by another than prompts are read."""
    original, busy, begun, go = LimitedProcess.ask, set[int](), threading.Event(), threading.Event()

    def ask(self: LimitedProcess, request: Any, *meanwhile: Any) -> Any:
        assert id(self) not in busy
        if request.get("text") != "held":
            return original(self, request, *meanwhile)
        busy.add(id(self))
        begun.set()
        assert go.wait(PATIENCE)
        busy.clear()
        return original(self, request, *meanwhile)

    monkeypatch.setattr(LimitedProcess, "ask", ask)
    asked = Asked(generator, drawn(3), 3)
    encoding = threading.Thread(target=generator.encode, args=("held",))
    encoding.start()
    try:
        assert begun.wait(PATIENCE)
        scheduler.submit([asked.request])
        assert asked.result().error is None
    finally:
        go.set()
        encoding.join(PATIENCE)


def test_a_full_queue_refuses_all_or_none(generator: Generator, scheduler: Scheduler):
    asked = [Asked(generator, drawn(3, place), 2) for place in range(SLOTS + QUEUE)]
    with held_steps() as begun:
        scheduler.submit([each.request for each in asked[:SLOTS]])
        assert begun.wait(PATIENCE)
        scheduler.submit([each.request for each in asked[SLOTS + 1 :]])
        with pytest.raises(Full):
            scheduler.submit([Asked(generator, drawn(3), 1).request for _ in range(2)])
        assert (scheduler.active, scheduler.waiting) == (SLOTS, QUEUE - 1)
        scheduler.submit([asked[SLOTS].request])
    for each in asked:
        assert each.result().error is None


def test_a_step_that_fails_fails_its_texts_alone(
    generator: Generator, scheduler: Scheduler, tiny: TinyGguf, monkeypatch: pytest.MonkeyPatch
):
    for error, wanted in ((ShapeError("no room"), ShapeError), (ZeroDivisionError("x"), InternalError)):

        def fail(*_: Any, error: Exception = error) -> None:
            monkeypatch.undo()
            raise error

        failures = scheduler.counters.failures
        monkeypatch.setattr(SlotBatch, "step", fail)
        asked = Asked(generator, drawn(9), 3)
        scheduler.submit([asked.request])
        assert type(asked.result().error) is wanted
        assert scheduler.counters.failures == failures + 1
        again = Asked(generator, drawn(9), 3)
        scheduler.submit([again.request])
        assert again.result().tokens == until_end(tiny.greedy(again.ids, 3))
        assert scheduler.is_running


def test_a_grammar_that_fails_fails_its_text_alone(
    generator: Generator, scheduler: Scheduler, tiny: TinyGguf, monkeypatch: pytest.MonkeyPatch
):
    """One text whose grammar fails behind two tokens, beside one with a grammar, and one without."""
    allowed = TextConstraint.allowed

    def fail(self: TextConstraint, ids: Sequence[int]) -> Any:
        if ids[0] == 7 and len(ids) == 12:
            raise InputError("too much")
        return allowed(self, ids)

    monkeypatch.setattr(TextConstraint, "allowed", fail)
    asked = [
        Asked(generator, [7, *drawn(9)], 9, regex="[a-z]+"),
        Asked(generator, [8, *drawn(9)], 9, regex="[a-c]{4}"),
        Asked(generator, [9, *drawn(9)], 9),
    ]
    scheduler.submit([each.request for each in asked])
    failed, constrained, free = (each.result() for each in asked)
    assert isinstance(failed.error, InputError) and len(failed.tokens) == 2
    assert re.fullmatch("[a-c]{4}", constrained.text) and constrained.ended_by == "end"
    assert free.tokens == until_end(tiny.greedy(asked[2].ids, 9))
    assert scheduler.is_running


def test_closing_fails_what_is_not_done(folder: Path, device: Any):
    with Generator(folder, device=device) as generator:
        scheduler = generator.scheduler(slots=1, queue=2)
        asked = [Asked(generator, drawn(3, place), 9) for place in range(2)]
        with held_steps() as begun:
            scheduler.submit([each.request for each in asked])
            assert begun.wait(PATIENCE)
            closing = threading.Thread(target=scheduler.close)
            closing.start()
            while scheduler.is_running:
                pass
        closing.join(PATIENCE)
        assert [type(each.result().error) for each in asked] == [ClosedError] * 2
        with pytest.raises(ClosedError):
            scheduler.submit([asked[0].request])
