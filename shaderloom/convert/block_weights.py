"""Weights of GGUF files in the forms of ONNX's operators.

Blocks of 32 numbers along a row share a scale, and in Q4_1 a minimum.  MatMulNBits and GatherBlockQuantized read the
same codes in another order: a byte of GGUF holds numbers 16 places apart, one of ONNX two neighbours.  A Q4_1 number
is ``scale * code + minimum``, in ONNX ``(code - zero) * scale`` with a zero point that is a float.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .gguf_file import BLOCKS, GgufTensor

BLOCK = 32


@dataclass(frozen=True)
class FloatWeight:
    """A matrix [rows, columns], or a vector."""

    array: np.ndarray


@dataclass(frozen=True)
class BlockWeight:
    """Codes uint8 [rows, blocks, bytes] of ``bits`` bits, scales float32 [rows, blocks], and zero points like these.

    Without zero points they are half of the range.
    """

    bits: int
    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None = None

    @property
    def array(self) -> np.ndarray:
        """The numbers, float32 [rows, columns]."""
        codes = self.codes if self.bits == 8 else np.stack([self.codes & 15, self.codes >> 4], -1)
        codes = codes.reshape(*self.scales.shape, BLOCK).astype(np.float32)
        zeros = np.float32(1 << (self.bits - 1)) if self.zeros is None else self.zeros[..., None]
        return ((codes - zeros) * self.scales[..., None]).reshape(len(codes), -1)


Weight = FloatWeight | BlockWeight


def read_weight(tensor: GgufTensor, data: np.ndarray) -> Weight:
    """Return the weight of a tensor of a type of :data:`BLOCKS` whose bytes are ``data`` [rows, bytes of a row]."""
    if tensor.kind in ("F32", "F16"):
        floats = data.view(np.float32 if tensor.kind == "F32" else np.float16)
        return FloatWeight(floats.reshape(tensor.shape))
    rows, size = len(data), BLOCKS[tensor.kind][1]
    blocks = data.reshape(rows, -1, size)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    if tensor.kind == "Q8_0":
        return BlockWeight(8, blocks[..., 2:] ^ np.uint8(128), scales)
    codes = _neighbours(blocks[..., size - BLOCK // 2 :])
    if tensor.kind == "Q4_0":
        return BlockWeight(4, codes, scales)
    minima = np.ascontiguousarray(blocks[..., 2:4]).view(np.float16)[..., 0].astype(np.float32)
    is_flat = scales == 0  # all numbers of a block are its minimum
    scales = np.where(is_flat, np.float32(1), scales)
    codes[is_flat] = 0
    return BlockWeight(4, codes, scales, -minima / scales)


def _neighbours(packed: np.ndarray) -> np.ndarray:
    """Return codes of 4 bits, of which a byte holds those of places n and n + 16, with two neighbours in a byte."""
    codes = np.concatenate([packed & 15, packed >> 4], -1)
    return codes[..., ::2] | codes[..., 1::2] << 4


def take_rows(weight: Weight, order: np.ndarray) -> Weight:
    """Return a weight with its rows in another order."""
    if isinstance(weight, FloatWeight):
        return FloatWeight(weight.array[order])
    zeros = None if weight.zeros is None else weight.zeros[order]
    return BlockWeight(weight.bits, weight.codes[order], weight.scales[order], zeros)
