"""What decoders of GGUF files compute, with numpy: weights as the package gguf dequantises them, in GGUF's order."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np

#: Numbers of a block that share a scale
_BLOCK = 32


@dataclass
class LlamaReference:
    """A decoder of a family, with the numbers of its file by GGUF's names.

    ``rounds``: products with weights read activations of 8 bits, a scale for each block of them.
    """

    family: str
    layers: int
    heads: int
    shared: int
    head: int
    epsilon: float
    theta: float
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    rounds: bool = False

    @classmethod
    def read(cls, path: Path, dtype: Any = np.float32) -> LlamaReference:
        """Read a file of the llama family."""
        reader = gguf.GGUFReader(path)
        family = reader.fields["general.architecture"].contents()
        keys = (
            "block_count", "attention.head_count", "attention.head_count_kv", "rope.dimension_count",
            "attention.layer_norm_rms_epsilon", "rope.freq_base",
        )  # fmt: skip
        reference = cls(family, *(reader.fields[f"{family}.{key}"].contents() for key in keys))
        for tensor in reader.tensors:
            numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(dtype)
            reference.weights[tensor.name] = numbers.reshape([int(size) for size in tensor.shape[::-1]])
        return reference

    def logits(self, ids: list[int]) -> np.ndarray:
        """The logits [tokens, vocabulary] of one sequence."""
        w = self.weights
        x = w["token_embd.weight"][ids]
        for layer in range(self.layers):
            x = x + self._attention(self._norm(x, w[f"blk.{layer}.attn_norm.weight"]), f"blk.{layer}")
            h = self._norm(x, w[f"blk.{layer}.ffn_norm.weight"])
            gate, up = (self._product(h, w[f"blk.{layer}.ffn_{part}.weight"]) for part in ("gate", "up"))
            x = x + self._product(gate / (1 + np.exp(-gate)) * up, w[f"blk.{layer}.ffn_down.weight"])
        return self._product(self._norm(x, w["output_norm.weight"]), w.get("output.weight", w["token_embd.weight"]))

    def greedy(self, ids: list[int], count: int) -> list[int]:
        """The ``count`` most probable tokens behind ``ids``."""
        text = list(ids)
        for _ in range(count):
            text.append(int(self.logits(text)[-1].argmax()))
        return text[len(ids) :]

    def _product(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        if self.rounds:
            blocks = x.reshape(len(x), -1, _BLOCK)
            scales = np.abs(blocks).max(-1, keepdims=True) / 127
            x = (np.rint(blocks / scales) * scales).reshape(x.shape)
        return x @ weight.T

    def _norm(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * weight

    def _attention(self, x: np.ndarray, name: str) -> np.ndarray:
        size = len(x)

        def heads(part: str, count: int) -> np.ndarray:
            projected = self._product(x, self.weights[f"{name}.attn_{part}.weight"])
            projected = projected + self.weights.get(f"{name}.attn_{part}.bias", 0)
            return projected.reshape(size, count, self.head).transpose(1, 0, 2)

        query, key, value = heads("q", self.heads), heads("k", self.shared), heads("v", self.shared)
        query, key = self._turned(query), self._turned(key)
        key, value = (np.repeat(each, self.heads // self.shared, 0) for each in (key, value))
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(self.head)
        scores = np.where(np.tri(size, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        result = weights / weights.sum(-1, keepdims=True) @ value
        return self._product(result.transpose(1, 0, 2).reshape(size, -1), self.weights[f"{name}.attn_output.weight"])

    def _turned(self, heads: np.ndarray) -> np.ndarray:
        """Turn by position: pairs are neighbours in files of llama, halves of a head in those of qwen2."""
        angles = np.outer(np.arange(heads.shape[1]), self.theta ** (-np.arange(0, self.head, 2) / self.head))
        cosine, sine = np.cos(angles).astype(heads.dtype), np.sin(angles).astype(heads.dtype)
        if self.family == "llama":
            even, odd = heads[..., ::2], heads[..., 1::2]
            turned = np.stack([even * cosine - odd * sine, odd * cosine + even * sine], -1)
            return turned.reshape(heads.shape)
        first, second = heads[..., : self.head // 2], heads[..., self.head // 2 :]
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)
