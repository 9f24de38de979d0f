"""Operators of the registry that are not drawn, each with the reason."""

from __future__ import annotations

_NOT_COMPARABLE = (
    "its results are random numbers; tests/compiler/ops/test_random_numbers.py compares their distribution"
)

#: (domain, name) -> reason
EXCLUDED: dict[tuple[str, str], str] = {
    ("", "Bernoulli"): _NOT_COMPARABLE,
    ("", "Multinomial"): _NOT_COMPARABLE,
    ("", "RandomNormal"): _NOT_COMPARABLE,
    ("", "RandomNormalLike"): _NOT_COMPARABLE,
    ("", "RandomUniform"): _NOT_COMPARABLE,
    ("", "RandomUniformLike"): _NOT_COMPARABLE,
}
