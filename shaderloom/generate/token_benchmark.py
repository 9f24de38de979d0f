"""Tokens a second of a decoder: of a prompt, and of the tokens behind it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.plan.decoder_ports import IDS, MASK
from .cache import KeyValueCache
from .decoder import CachedDecoder
from .encoded_decoder import EncodedDecoder, EncoderInputs


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
        return _Prompt(None, drawn.tolist(), tokens)
    inputs: dict[str, Any] = {}
    for name, shape in decoder.form.encoder_shapes(tokens, shapes).items():
        whole = {IDS: drawn[None], MASK: np.ones((1, tokens), np.int64)}
        inputs[name] = whole.get(name, generator.standard_normal(shape).astype(np.float32))
    starts = list(decoder.folder.starts)
    return _Prompt(inputs, starts, tokens if decoder.reads_text else len(starts))


def _text(
    decoder: CachedDecoder | EncodedDecoder, cache: KeyValueCache, prompt: _Prompt, count: int
) -> tuple[float, float]:
    """Return the seconds of the prompt, and of the tokens behind the first one."""
    cache.rewind(0)
    start = time.perf_counter()
    if isinstance(decoder, EncodedDecoder) and prompt.encoded is not None:
        decoder.encode(prompt.encoded, cache)
    token = decoder.read(prompt.ids, cache, 0)
    middle = time.perf_counter()
    for place in range(count - 1):
        token = decoder.read([token], cache, len(prompt.ids) + place)
    return middle - start, time.perf_counter() - middle
