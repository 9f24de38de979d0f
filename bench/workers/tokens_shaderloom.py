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

    job = json.loads(sys.argv[1])
    decoder = CachedDecoder(ModelFolder.read(Path(job["folder"])))
    cache = decoder.new_cache()

    def text() -> dict[str, object]:
        cache.rewind(0)
        start = time.perf_counter()
        tokens = [decoder.read(job["ids"], cache, 0)]
        first = time.perf_counter()
        for place in range(job["count"] - 1):
            tokens.append(decoder.read(tokens[-1:], cache, len(job["ids"]) + place))
        return {"first_s": first - start, "others_s": time.perf_counter() - first, "tokens": tokens}

    text()
    say(version=__version__, device=decoder.session.device.name)
    for _ in sys.stdin:
        say(**text())


if __name__ == "__main__":
    main()
