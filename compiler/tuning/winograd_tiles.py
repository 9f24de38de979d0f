"""Cost model of Winograd convolution: whether it pays, and with which tiles."""

from __future__ import annotations

from ...runtime.plan.record import record
from ..ops.math.winograd import TAPS, TILE_OUTPUTS, tiles
from ..symbolic.lanes import LANES
from ..target import Target, ThreadCosts
from . import gemm_tiles


@record
class WinogradProblem:
    """A convolution of 3 by 3: sizes of its result, and channels of its input."""

    images: int
    height: int
    width: int
    channels: int
    features: int


def tile_outputs(problem: WinogradProblem, target: Target) -> int | None:
    """Return the results of a tile along each axis where the transforms pay, else None.

    Only targets whose threads share nothing are modelled: there a load costs as much as many multiplications, and tiles
    of neighbouring channels share what the direct sum loads for each tap.
    """
    thread_costs = target.costs
    if not isinstance(thread_costs, ThreadCosts):
        return None
    pixels = problem.images * problem.height * problem.width
    direct = _product_cost(gemm_tiles.Problem(pixels, problem.features, TAPS**2 * problem.channels), target)
    limit = target.limit("max-storage-buffer-binding-size")
    fitting = [outputs for outputs in TILE_OUTPUTS if _points_bytes(problem, outputs) <= limit]
    costs = {outputs: _cost(problem, outputs, target, thread_costs) for outputs in fitting}
    if not costs:
        return None
    best = min(costs, key=lambda outputs: costs[outputs])
    return best if costs[best] < direct else None


def possible_outputs(problem: WinogradProblem, target: Target) -> list[int | None]:
    """Return all forms that the device can run, the direct sum (None) first."""
    limit = target.limit("max-storage-buffer-binding-size")
    return [None, *(outputs for outputs in TILE_OUTPUTS if _points_bytes(problem, outputs) <= limit)]


def _product_cost(problem: gemm_tiles.Problem, target: Target) -> float:
    cost = gemm_tiles.score(problem, gemm_tiles.ranked(problem, target)[0], target)
    assert cost is not None
    return cost


def _covered(problem: WinogradProblem, outputs: int) -> int:
    """Return the number of tiles of all images."""
    return problem.images * tiles(problem.height, outputs) * tiles(problem.width, outputs)


def _points_bytes(problem: WinogradProblem, outputs: int) -> int:
    """Return the bytes of the larger tensor between transforms and products: each is bound as a whole."""
    points = (outputs + TAPS - 1) ** 2
    return 4 * points * _covered(problem, outputs) * max(problem.channels, problem.features)


def _cost(problem: WinogradProblem, outputs: int, target: Target, costs: ThreadCosts) -> float:
    points = (outputs + TAPS - 1) ** 2
    covered = _covered(problem, outputs)
    product = _product_cost(gemm_tiles.Problem(covered, problem.features, problem.channels, points), target)
    each = costs.winograd
    moved_in = covered * problem.channels * points * (each.load + each.store)
    moved_out = covered * problem.features * (points * each.load + outputs**2 * each.store)
    group = target.group_threads * LANES
    return product + target.repaid_runs * (moved_in + moved_out) / group / costs.cores + each.compile
