"""Tokens a second of a decoder: of a prompt, and of the tokens behind it."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from .cache import KeyValueCache
from .decoder import CachedDecoder


def measure_tokens(decoder: CachedDecoder, prompt: int, count: int, repeat: int) -> dict[str, Any]:
    """Return the medians of ``repeat`` texts: ``prompt`` random tokens, and ``count`` greedy ones behind them.

    A text before them compiles what is needed; its time to the first token is that of a new process.
    """
    ids = np.random.default_rng(0).integers(0, decoder.form.vocabulary, prompt).tolist()
    cache = decoder.new_cache()
    first, *_ = _text(decoder, cache, ids, min(count, 2))
    times = [_text(decoder, cache, ids, count) for _ in range(repeat)]
    prefill, decode = (statistics.median(column) for column in zip(*times))
    cache_bytes = cache.nbytes
    cache.dispose()
    return {
        "device": decoder.session.device.name,
        "prompt_tokens": prompt,
        "new_tokens": count,
        "first_token_seconds_new": first,
        "first_token_seconds": prefill,
        "prefill_tokens_per_second": prompt / prefill,
        "decode_tokens_per_second": (count - 1) / decode if count > 1 else 0.0,
        "device_bytes": decoder.session.device_bytes + cache_bytes,
        "cache_bytes": cache_bytes,
        "plans": len(decoder.session.stats.keys),
    }


def _text(decoder: CachedDecoder, cache: KeyValueCache, ids: list[int], count: int) -> tuple[float, float]:
    """Return the seconds of the prompt, and of the tokens behind the first one."""
    cache.rewind(0)
    start = time.perf_counter()
    token = decoder.read(ids, cache, 0)
    middle = time.perf_counter()
    for place in range(count - 1):
        token = decoder.read([token], cache, len(ids) + place)
    return middle - start, time.perf_counter() - middle
