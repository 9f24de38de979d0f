"""Targets of coverage-guided fuzzing without their engine: what they begin with is no finding, and a fault is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shaderloom.convert import gguf_decoder
from shaderloom.generate import folder
from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.runtime.plan.errors import BundleError, InternalError

from ..support import processor_time, verdicts
from ..support.effort import quick_first
from ..support.hostile_shaders import EXPANDING
from . import guided, model_worker
from .guided import TARGETS, prepare


@pytest.mark.parametrize("name", quick_first(TARGETS))
def test_corpus_and_dictionary(name: str, tmp_path) -> None:
    target = TARGETS[name]
    prepare(target, target.seeds(tmp_path), tmp_path)
    sizes = [path.stat().st_size for path in (tmp_path / "corpus").iterdir()]
    assert sizes and max(sizes) <= target.longest
    assert (tmp_path / "dictionary").read_text().isascii()


def test_bundles(monkeypatch, tmp_path) -> None:
    target = TARGETS["bundle"]
    attempt = target.attempt(tmp_path)
    content = min(target.seeds(tmp_path).values(), key=len)
    attempt(content)
    attempt(content[:-1])

    def refuse(_: Bundle) -> None:
        raise BundleError("x")

    def fail(_: Bundle) -> None:
        raise InternalError("x")

    monkeypatch.setattr(Bundle, "check_all", refuse)
    attempt(content)
    monkeypatch.setattr(Bundle, "check_all", fail)
    with pytest.raises(InternalError):
        attempt(content)


@pytest.fixture
def timer() -> Iterator[None]:
    """The signal that bounds the time of an attempt, restored behind the test."""
    yield from processor_time.watching()


@pytest.mark.usefixtures("timer")
def test_models(monkeypatch, tmp_path) -> None:
    attempt = TARGETS["model"].attempt(tmp_path)
    attempt(b"no model")

    def fail(_: object) -> None:
        raise ValueError("x")

    monkeypatch.setattr(model_worker, "compile_model", fail)
    with pytest.raises(AssertionError, match="ValueError: x"):
        attempt(b"no model")


@pytest.mark.usefixtures("timer")
def test_shaders(monkeypatch, tmp_path) -> None:
    attempt = TARGETS["shader"].attempt(tmp_path)
    for content in (b"", b"\xff", EXPANDING["calls"].encode()):
        attempt(content)

    def turn(text: str) -> str:
        while text:
            pass
        return "has another fault"

    monkeypatch.setattr(verdicts, "python_excess", turn)
    monkeypatch.setattr(guided, "SHADER_SECONDS", 0.1)
    attempt = TARGETS["shader"].attempt(tmp_path)
    with pytest.raises(processor_time.TooSlow, match=r"more than 0\.1 s"):
        attempt(b"fn")
    if verdicts.JavaScript.is_available():
        with pytest.raises(AssertionError, match="Python says 'has another fault', JavaScript ''"):
            attempt(b"")


@pytest.mark.parametrize(("name", "module", "called"), [
    ("gguf", gguf_decoder, "write_decoder"), ("settings", folder, "_chat"),
])  # fmt: skip
def test_folders_of_decoders(name: str, module: Any, called: str, monkeypatch, tmp_path) -> None:
    """Seeds are no findings, and neither is what is refused; a fault behind what is read is one."""
    target = TARGETS[name]
    seeds = target.seeds(tmp_path)
    attempt = target.attempt(tmp_path)
    for content in [*seeds.values(), b"{}", b"nothing"]:
        attempt(content)

    def fail(*_: object) -> None:
        raise ValueError("x")

    monkeypatch.setattr(module, called, fail)
    with pytest.raises(ValueError, match="x"):
        attempt(next(iter(seeds.values())))
