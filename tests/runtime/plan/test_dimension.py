"""Numbers of a plan that depend on dimensions: one function for all of them gives what each is by itself."""

from __future__ import annotations

import random

import pytest

from shaderloom.runtime.memory.storage import rounded_up
from shaderloom.runtime.plan.dimension import DimExpr, dimension_function, evaluate

NAMES = ("n", "a name with 'quotes'\n", "p0")


def drawn(source: random.Random, depth: int) -> DimExpr:
    kind = source.choice(("int", "name", "+", "*", "//", "%", "min", "max")) if depth else "int"
    if kind == "int":
        return source.randrange(-5, 100)
    if kind == "name":
        return source.choice(NAMES)
    if kind in ("//", "%"):
        return [kind, drawn(source, depth - 1), source.randrange(1, 9)]
    count = 2 if kind in ("min", "max") else source.randrange(1, 4)
    return [kind, *(drawn(source, depth - 1) for _ in range(count))]


def test_random_expressions() -> None:
    source = random.Random(7)
    expressions = [drawn(source, 4) for _ in range(300)]
    sizes = dimension_function(expressions, NAMES)
    for values in ((1, 2, 3), (0, 1000, 7), (123, 5, 64)):
        symbols = dict(zip(NAMES, values))
        assert sizes(*values) == tuple(evaluate(expression, symbols) for expression in expressions)
    assert dimension_function([3, 4], ())() == (3, 4)


def test_what_no_plan_says() -> None:
    with pytest.raises(ValueError, match="unknown operator"):
        dimension_function([["-", "n", 1]], NAMES)
    with pytest.raises(KeyError):
        dimension_function(["m"], NAMES)


def test_sizes_of_pooled_buffers() -> None:
    sizes = [rounded_up(size) for size in range(1, 5000)]
    assert sorted(set(sizes))[:9] == [64, 128, 192, 256, 320, 384, 448, 512, 640]
    assert all(size <= found < max(1.25 * size, size + 64) for size, found in enumerate(sizes, 1))
