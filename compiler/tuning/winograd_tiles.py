"""Where Winograd's filtering pays, and with which tiles."""

from __future__ import annotations

from dataclasses import dataclass

from ...runtime.plan.device_profile import DeviceProfile
from ..ops.math.winograd import TAPS, TILE_OUTPUTS, tiles
from ..symbolic.lanes import LANES
from . import gemm_tiles

#: Nanoseconds on lavapipe for eight threads (docs/performance.md): loading and storing a vector of a transform
_LOAD, _STORE = 120.0, 160.0
#: Compiling both transforms, in the unit of the cost of tiles
_COMPILE = 400e6


@dataclass(frozen=True, slots=True)
class WinogradProblem:
    """A convolution of 3 by 3: sizes of its result, and channels of its input."""

    images: int
    height: int
    width: int
    channels: int
    features: int


def tile_outputs(problem: WinogradProblem, profile: DeviceProfile) -> int | None:
    """Results of a tile along each axis where the transforms pay, else None.

    Only software drivers are modelled: there a load costs as much as many multiplications, and tiles of neighbouring
    channels share what the direct sum loads for each tap.
    """
    if profile.kind != "cpu":
        return None
    pixels = problem.images * problem.height * problem.width
    direct = _product_cost(gemm_tiles.Problem(pixels, problem.features, TAPS**2 * problem.channels), profile)
    limit = profile.limit("max-storage-buffer-binding-size")
    fitting = [outputs for outputs in TILE_OUTPUTS if _points_bytes(problem, outputs) <= limit]
    costs = {outputs: _cost(problem, outputs, profile) for outputs in fitting}
    if not costs:
        return None
    best = min(costs, key=lambda outputs: costs[outputs])
    return best if costs[best] < direct else None


def possible_outputs(problem: WinogradProblem, profile: DeviceProfile) -> list[int | None]:
    """All forms that the device can run, the direct sum (None) first."""
    limit = profile.limit("max-storage-buffer-binding-size")
    return [None, *(outputs for outputs in TILE_OUTPUTS if _points_bytes(problem, outputs) <= limit)]


def _product_cost(problem: gemm_tiles.Problem, profile: DeviceProfile) -> float:
    cost = gemm_tiles.score(problem, gemm_tiles.ranked(problem, profile)[0], profile)
    assert cost is not None
    return cost


def _covered(problem: WinogradProblem, outputs: int) -> int:
    """Tiles of all images."""
    return problem.images * tiles(problem.height, outputs) * tiles(problem.width, outputs)


def _points_bytes(problem: WinogradProblem, outputs: int) -> int:
    """Size of the larger of the two tensors between the transforms and the products: each is bound as a whole."""
    points = (outputs + TAPS - 1) ** 2
    return 4 * points * _covered(problem, outputs) * max(problem.channels, problem.features)


def _cost(problem: WinogradProblem, outputs: int, profile: DeviceProfile) -> float:
    points = (outputs + TAPS - 1) ** 2
    covered = _covered(problem, outputs)
    product = _product_cost(gemm_tiles.Problem(covered, problem.features, problem.channels, points), profile)
    moved_in = covered * problem.channels * points * (_LOAD + _STORE)
    moved_out = covered * problem.features * (points * _LOAD + outputs**2 * _STORE)
    subgroup = gemm_tiles.CPU_SUBGROUP * LANES
    return product + gemm_tiles.CPU_RUNS * (moved_in + moved_out) / subgroup / gemm_tiles.CPU_CORES + _COMPILE
