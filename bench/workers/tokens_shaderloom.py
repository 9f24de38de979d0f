"""Texts of Shaderloom's decoders."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.workers.protocol import say


def main() -> None:
    from shaderloom import __version__
    from shaderloom.generate.decoder import CachedDecoder
    from shaderloom.generate.folder import ModelFolder
    from shaderloom.generate.token_benchmark import greedy_tokens

    job = json.loads(sys.argv[1])
    decoder = CachedDecoder(ModelFolder.read(Path(job["folder"])))
    cache = decoder.new_cache()

    def text() -> dict[str, object]:
        cache.rewind(0)
        start = time.perf_counter()
        texts = greedy_tokens(decoder, cache, job["ids"], job["count"])
        tokens = [next(texts)]
        first = time.perf_counter()
        tokens += texts
        others = time.perf_counter() - first
        return {"first_s": first - start, "others_s": others, "tokens": tokens}

    text()
    say(version=__version__, device=decoder.session.device.name)
    for _ in sys.stdin:
        say(**text())


if __name__ == "__main__":
    main()
