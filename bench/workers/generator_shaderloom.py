"""Texts of ``shaderloom.Generator``, and what its plans alone take: a mode is a text behind a prompt that is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.decoders import DECODERS, TEXT, Decoder
from bench.workers.turns import OpenedRuntime, serve

#: Arguments of the draws
DRAWN: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 1}


def main() -> None:
    import shaderloom
    from shaderloom.runtime.device.opening import open_device

    device = open_device()

    def open_model(job: dict[str, Any], _: dict[str, np.ndarray]) -> OpenedRuntime:
        generator = shaderloom.Generator(Path(job["model"]).parent, device=device, max_length=2048, cache=False)
        return opened_runtime(generator, DECODERS[job["decoder"]])

    serve(open_model, {"version": shaderloom.__version__, "device": device.name})


def opened_runtime(generator: Any, decoder: Decoder) -> OpenedRuntime:
    """Return the modes of an open generator."""
    from shaderloom.generate.sampling import Sampling

    prompt = TEXT.ids(decoder)
    shared = generator._shared
    model, cache = shared.decoder, generator._cache
    facts: dict[str, Any] = {}

    def text(**options: Any) -> Callable[[], None]:
        def generate() -> None:
            for _ in generator.generate(prompt, max_new_tokens=TEXT.count, **options):
                pass

        return generate

    def plans(*, drawn: bool) -> Callable[[], None]:
        sampling = Sampling(**DRAWN)

        def run() -> None:
            """Run the plans of as many tokens, of which the host reads none."""
            for _ in range(TEXT.count):
                model.follow(cache, len(prompt), is_greedy=not drawn)
                if drawn:
                    shared.choice().submit([len(prompt)], [sampling])
            model.session.device.wait()

        return run

    def first_logits() -> list[np.ndarray]:
        generator.rewind()
        facts["tokens"] = generator.generate(prompt, max_new_tokens=TEXT.count, stream=False).tokens
        generator.rewind(len(prompt) - 1)
        generator.generate(prompt, max_new_tokens=1, stream=False)
        return [model.logits.numpy()]

    modes = {"plans": plans(drawn=False), "greedy": text(), "plans, drawn": plans(drawn=True), "drawn": text(**DRAWN)}
    return OpenedRuntime(modes, first_logits, facts, generator.close)


if __name__ == "__main__":
    main()
