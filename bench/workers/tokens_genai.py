"""Texts of onnxruntime-genai on the processor, with two threads that do not spin between texts."""

from __future__ import annotations

import json
import sys
import time

from bench.workers.protocol import say

THREADS = {"intra_op_num_threads": 2, "session.intra_op.allow_spinning": "0"}


def main() -> None:
    import onnxruntime_genai as genai

    job = json.loads(sys.argv[1])
    config = genai.Config(job["folder"])
    config.overlay(json.dumps({"model": {"decoder": {"session_options": THREADS}}}))
    model = genai.Model(config)

    def text() -> dict[str, object]:
        parameters = genai.GeneratorParams(model)
        length = len(job["ids"]) + job["count"]
        parameters.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator = genai.Generator(model, parameters)
        start = time.perf_counter()
        generator.append_tokens(job["ids"])
        generator.generate_next_token()
        first = time.perf_counter()
        for _ in range(job["count"] - 1):
            generator.generate_next_token()
        others = time.perf_counter() - first
        tokens = [int(token) for token in generator.get_sequence(0)[len(job["ids"]) :]]
        return {"first_s": first - start, "others_s": others, "tokens": tokens}

    text()
    say(version=genai.__version__, device="CPU, 2 threads")
    for _ in sys.stdin:
        say(**text())


if __name__ == "__main__":
    main()
