"""Matrix products on the device: odd sizes, broadcasting, views, epilogues, every template."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from .support.kernels import make_model, run_kernels

SIZES = (1, 3, 7, 17, 63, 65, 130)


def matmul(device, left: np.ndarray, right: np.ndarray, **options):
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    feeds = {"a": left, "b": right}
    return run_kernels(device, make_model([node], feeds, ["y"]), feeds, **options)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def check(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-3)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("m", SIZES)
def test_sizes(device, kind, m):
    generator = np.random.default_rng(m)
    for n, k in [(size, int(generator.choice(SIZES))) for size in SIZES] + [(64, 64), (8, 32)]:
        left, right = random(m, k), random(k, n)
        check(matmul(device, left, right, kind=kind).outputs["y"], left @ right)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3, 5, 8), (2, 3, 8, 4)), ((2, 1, 5, 7), (3, 7, 3)), ((4, 3, 8), (8, 9)), ((5, 12), (2, 3, 12, 8)), ((1, 0), (0, 5))],
)
def test_batches(device, kind, left, right):
    a, b = random(*left), random(*right)
    check(matmul(device, a, b, kind=kind).outputs["y"], a @ b)
