"""Targets of coverage-guided fuzzing without their engine: what they begin with is no finding, and a fault is one."""

from __future__ import annotations

import pytest

from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.runtime.plan.errors import BundleError, InternalError

from ..support.effort import quick_first
from . import model_worker
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


@pytest.mark.skipif(not hasattr(model_worker.signal, "SIGPROF"), reason="the time of a model is bounded by a signal")
def test_models(monkeypatch, tmp_path) -> None:
    before = model_worker.signal.getsignal(model_worker.signal.SIGPROF)
    try:
        attempt = TARGETS["model"].attempt(tmp_path)
        attempt(b"no model")

        def fail(_: object) -> None:
            raise ValueError("x")

        monkeypatch.setattr(model_worker, "compile_model", fail)
        with pytest.raises(AssertionError, match="ValueError: x"):
            attempt(b"no model")
    finally:
        model_worker.signal.signal(model_worker.signal.SIGPROF, before)
