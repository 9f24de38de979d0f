"""Random decision trees as the attributes of ai.onnx.ml list them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
#: The weights of a leaf: pairs of a target and a number
Weights = Sequence[tuple[int, float]]


def random_trees(
    trees: int,
    depth: int,
    features: int,
    weights_of: Callable[[int, np.random.Generator], Weights],
    *,
    prefix: str,
    modes: Sequence[str] = MODES[:1],
    missing: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Return trees of at most ``depth`` decisions; ``weights_of(tree, generator)`` makes those of a leaf.

    Node ids are in no order, thresholds multiples of 1/4 so that features can be equal to them.
    """
    generator = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {f"nodes_{name}": [] for name in ("treeids", "nodeids", "featureids", "modes")}
    columns |= {f"nodes_{name}": [] for name in ("values", "truenodeids", "falsenodeids")}
    columns |= {f"{prefix}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    tracks: list[int] = []
    for tree in range(trees):
        ids = iter(generator.permutation(1 << (depth + 1)).tolist())
        waiting = [(next(ids), 0)]
        while waiting:
            node, level = waiting.pop()
            is_leaf = level == depth or (level > 0 and generator.random() < 0.2)
            sides = (0, 0) if is_leaf else (next(ids), next(ids))
            row = (tree, node, int(generator.integers(features)), "LEAF" if is_leaf else str(generator.choice(modes)))
            for name, entry in zip(("treeids", "nodeids", "featureids", "modes"), row):
                columns[f"nodes_{name}"].append(entry)
            columns["nodes_values"].append(float(generator.integers(-4, 5)) / 4)
            columns["nodes_truenodeids"].append(sides[0])
            columns["nodes_falsenodeids"].append(sides[1])
            tracks.append(int(generator.integers(2)))
            if not is_leaf:
                waiting += [(side, level + 1) for side in sides]
                continue
            for target, weight in weights_of(tree, generator):
                for name, entry in (("treeids", tree), ("nodeids", node), ("ids", target), ("weights", weight)):
                    columns[f"{prefix}_{name}"].append(entry)
    return {**columns, **({"nodes_missing_value_tracks_true": tracks} if missing else {})}


def quarters(rows: int, features: int, *, gaps: bool = False, seed: int = 0) -> np.ndarray:
    """Return features of float32 that are multiples of 1/4, with NaN among them."""
    generator = np.random.default_rng(seed)
    values = (generator.integers(-5, 6, (rows, features)) / 4).astype(np.float32)
    return np.where(generator.random(values.shape) < (0.2 if gaps else 0), np.float32(np.nan), values)
