"""Decoders of the same sizes in PyTorch, float16, replaying a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.decoders import DECODERS, RUNS, Decoder, Run
from bench.workers.turns import OpenedRuntime, serve


def main() -> None:
    import torch

    torch.set_grad_enabled(False)

    def open_model(job: dict[str, Any], _: dict[str, np.ndarray]) -> OpenedRuntime:
        model = HalfDecoder(torch, DECODERS[job["decoder"]])
        return OpenedRuntime({run.name: _lazy(torch, model, run) for run in RUNS})

    serve(open_model, {"version": torch.__version__, "device": torch.cuda.get_device_name()})


class HalfDecoder:
    """A decoder with random weights in float16; its caches are as long as a run needs them."""

    def __init__(self, torch: Any, decoder: Decoder) -> None:
        self.torch, self.decoder = torch, decoder
        width = (decoder.heads + 2 * decoder.shared) * decoder.head
        self.layers = [
            {
                "qkv": self._weight(width, decoder.hidden),
                "output": self._weight(decoder.hidden, decoder.heads * decoder.head),
                "gate_up": self._weight(2 * decoder.inner, decoder.hidden),
                "down": self._weight(decoder.hidden, decoder.inner),
            }
            for _ in range(decoder.layers)
        ]
        self.norm = torch.ones(decoder.hidden, device="cuda", dtype=torch.float16)
        self.embedding = self._weight(decoder.vocabulary, decoder.hidden)

    def _weight(self, columns: int, terms: int) -> Any:
        return self.torch.randn(columns, terms, device="cuda", dtype=self.torch.float16) * terms**-0.5

    def caches(self, run: Run) -> list[Any]:
        """Keys and values of each layer."""
        torch, rows = self.torch, max(run.capacity, run.past + run.tokens)
        return [torch.randn(2, *self.decoder.cache(rows), device="cuda", dtype=torch.float16) for _ in self.layers]

    def logits(self, ids: Any, caches: list[Any], run: Run) -> Any:
        functional, decoder = self.torch.nn.functional, self.decoder
        end, x = run.past + run.tokens, self.embedding[ids]
        turns = self.torch.ones(run.tokens, decoder.head, device="cuda", dtype=self.torch.float16)
        sizes = [count * decoder.head for count in (decoder.heads, decoder.shared, decoder.shared)]
        for layer, cache in zip(self.layers, caches):
            normed = functional.rms_norm(x, (decoder.hidden,), self.norm)
            query, key, value = (
                part.view(1, run.tokens, -1, decoder.head).transpose(1, 2)
                for part in (normed @ layer["qkv"].T).split(sizes, -1)
            )
            cache[0][:, :, run.past : end] = self._rotated(key, turns)
            cache[1][:, :, run.past : end] = value
            attended = functional.scaled_dot_product_attention(
                self._rotated(query, turns), cache[0][:, :, :end], cache[1][:, :, :end],
                is_causal=run.tokens > 1, enable_gqa=True,
            )  # fmt: skip
            x = x + attended.transpose(1, 2).reshape(1, run.tokens, -1) @ layer["output"].T
            normed = functional.rms_norm(x, (decoder.hidden,), self.norm)
            gate, up = (normed @ layer["gate_up"].T).chunk(2, -1)
            x = x + (functional.silu(gate) * up) @ layer["down"].T
        return functional.rms_norm(x, (decoder.hidden,), self.norm) @ self.embedding.T

    def _rotated(self, heads: Any, turns: Any) -> Any:
        first, second = heads.chunk(2, -1)
        return heads * turns + self.torch.cat((-second, first), -1) * turns


def _lazy(torch: Any, model: HalfDecoder, run: Run) -> Callable[[], Any]:
    """Return a function that records a graph the first time, then replays it and waits."""
    graphs: list[tuple[Any, ...]] = []

    def record() -> tuple[Any, ...]:
        caches, ids = model.caches(run), torch.from_numpy(run.feeds()["input_ids"]).cuda()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                model.logits(ids, caches, run)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = model.logits(ids, caches, run)
        return graph, caches, ids, logits

    def once() -> None:
        if not graphs:
            graphs.append(record())
        graphs[0][0].replay()
        torch.cuda.synchronize()

    return once


if __name__ == "__main__":
    main()
