"""The tile configurations that a kernel could have had, with the scores by which one was chosen.

A plan does not keep them: they follow from the sizes of the product and the device profile, and are worked out when
somebody looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...runtime.plan.device_profile import DeviceProfile
from ..symbolic.lanes import LANES
from . import gemm_tiles

#: Configurations that are listed
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Alternative:
    """``score``: cost relative to the best; None where a rule chose."""

    config: Mapping[str, Any]
    score: float | None
    chosen: bool


def alternatives(
    config: Mapping[str, Any], dims: Mapping[str, int], batch: int, flops: int, profile: DeviceProfile
) -> list[Alternative]:
    """The ranked configurations of a product's kernel, best first; empty for kernels that are no products.

    ``config`` is that of the kernel, ``dims`` the sizes of its loops, ``batch`` the number of products, ``flops`` their
    work; all for the largest sizes of dynamic dimensions.
    """
    problem = problem_of(dims, batch, flops)
    if problem is None:
        return []
    tiles = gemm_tiles.ranked(problem, profile)
    scores = [gemm_tiles.score(problem, tile, profile) for tile in tiles]
    best = min((score for score in scores if score is not None), default=None)
    found = [
        Alternative(
            asdict(tile),
            None if score is None or best is None else score / best,
            asdict(tile) == dict(config),
        )
        for tile, score in zip(tiles, scores)
    ]
    if not any(item.chosen for item in found):
        return []  # the kernel is of another kind, or another version has chosen
    position = next(index for index, item in enumerate(found) if item.chosen)
    return found[: max(SHOWN, position + 1)]


def problem_of(dims: Mapping[str, int], batch: int, flops: int) -> gemm_tiles.Problem | None:
    """The product whose kernel has these loops; None if they are not those of one."""
    m, vectors = dims.get("m", 0), dims.get("vectors", 0)
    if not m or not vectors or not batch or flops % (2 * batch * m):
        return None
    n_times_k = flops // (2 * batch * m)
    for k in (dims.get("k", 0), dims.get("steps", 0), LANES * dims.get("steps", 0)):
        if not k or n_times_k % k:
            continue
        n = n_times_k // k
        if -(-n // LANES) == vectors:
            return gemm_tiles.Problem(m, n, k, batch)
    return None
