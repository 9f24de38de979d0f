"""Tokens a second of a decoder: of a prompt, and of the tokens behind it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.plan.decoder_ports import IDS, MASK
from ..runtime.plan.errors import InternalError
from .cache import KeyValueCache
from .chooser import DeviceChoice
from .decoder import CachedDecoder
from .encoded_decoder import EncodedDecoder, EncoderInputs
from .text import StopTexts
from .text_row import TextRow, TextTask, TokenRule
from .text_tokens import TextTokens


@dataclass(frozen=True)
class _Prompt:
    """What a text begins with: what is encoded, if anything is, and tokens of the decoder.  ``read`` is counted."""

    encoded: EncoderInputs | None
    ids: list[int]
    read: int


def measure_tokens(
    decoder: CachedDecoder | EncodedDecoder,
    prompt: int,
    count: int,
    repeat: int,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, Any]:
    """Return the medians of ``repeat`` texts: ``prompt`` random tokens, and ``count`` greedy ones behind them.

    An encoder of text reads these tokens, another one random features of ``shapes``, or of those that its folder
    states.  A text before them compiles what is needed; its time to the first token is that of a new process.
    """
    begin = _random_prompt(decoder, prompt, shapes or {})
    cache = decoder.new_cache()
    first, *_ = _text(decoder, cache, begin, min(count, 2))
    times = [_text(decoder, cache, begin, count) for _ in range(repeat)]
    prefill, decode = (statistics.median(column) for column in zip(*times))
    cache_bytes = cache.nbytes
    cache.dispose()
    return {
        "device": decoder.session.device.name,
        "prompt_tokens": begin.read,
        "new_tokens": count,
        "first_token_seconds_new": first,
        "first_token_seconds": prefill,
        "prefill_tokens_per_second": begin.read / prefill,
        "decode_tokens_per_second": (count - 1) / decode if count > 1 else 0.0,
        "device_bytes": sum(session.device_bytes for session in decoder.sessions) + cache_bytes,
        "cache_bytes": cache_bytes,
        "plans": sum(len(session.stats.keys) for session in decoder.sessions),
    }


def _random_prompt(
    decoder: CachedDecoder | EncodedDecoder, tokens: int, shapes: Mapping[str, tuple[int, ...]]
) -> _Prompt:
    generator = np.random.default_rng(0)
    drawn = generator.integers(0, decoder.form.vocabulary, tokens)
    if isinstance(decoder, CachedDecoder):
        decoder.folder.refuse_shapes(shapes)
        return _Prompt(None, drawn.tolist(), tokens)
    inputs: dict[str, Any] = {}
    for name, shape in decoder.form.encoder_shapes(tokens, shapes).items():
        whole = {IDS: drawn[None], MASK: np.ones((1, tokens), np.int64)}
        inputs[name] = whole.get(name, generator.standard_normal(shape).astype(np.float32))
    starts = list(decoder.folder.starts) or [0]
    return _Prompt(inputs, starts, tokens if decoder.reads_text else len(starts))


def greedy_tokens(
    decoder: CachedDecoder | EncodedDecoder, cache: KeyValueCache, ids: list[int], count: int
) -> Iterator[int]:
    """Yield ``count`` most probable tokens behind ``ids``, whatever they are, over a cache without tokens."""
    row = TextRow(TextTask(ids, count, (), None, StopTexts(()), TokenRule()))
    tokens = TextTokens(decoder, _unwanted, cache, []).each(row)
    while not row.ended_by:
        row.take(next(tokens))
        yield row.ids[-1]


def _unwanted() -> DeviceChoice:
    raise InternalError("greedy tokens need no choice")


def _text(
    decoder: CachedDecoder | EncodedDecoder, cache: KeyValueCache, prompt: _Prompt, count: int
) -> tuple[float, float]:
    """Return the seconds of the prompt, and of the tokens behind the first one."""
    cache.rewind(0)
    start = time.perf_counter()
    if isinstance(decoder, EncodedDecoder) and prompt.encoded is not None:
        decoder.encode(prompt.encoded, cache)
    tokens = greedy_tokens(decoder, cache, prompt.ids, count)
    next(tokens)
    middle = time.perf_counter()
    for _ in tokens:
        pass
    return middle - start, time.perf_counter() - middle
