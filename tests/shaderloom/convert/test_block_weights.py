"""Repacked weights are the numbers of the file, as the package gguf dequantises them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from shaderloom.convert.block_weights import BlockWeight, read_weight, take_rows
from shaderloom.convert.gguf_file import GgufTensor


@pytest.mark.parametrize("kind", ["F32", "F16", "Q4_0", "Q4_1", "Q8_0"])
def test_numbers_are_the_same(kind: str):
    array = np.random.default_rng(1).standard_normal((5, 96)).astype(np.float32)
    array[2, 32:64] = 0.75  # a block of one number, whose scale is 0 in Q4_1
    array[3, :32] = 0
    dtype = gguf.GGMLQuantizationType[kind]
    data = np.ascontiguousarray(gguf.quants.quantize(array, dtype)).reshape(5, -1).view(np.uint8)
    weight = read_weight(GgufTensor("w", kind, (5, 96), 0), data)
    wanted = gguf.quants.dequantize(data, dtype)
    np.testing.assert_allclose(weight.array, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    order = np.array([4, 0, 1, 3, 2])
    np.testing.assert_array_equal(take_rows(weight, order).array, weight.array[order])
    assert isinstance(weight, BlockWeight) == kind.startswith("Q")
