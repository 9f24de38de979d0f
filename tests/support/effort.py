"""How much tests try: the quick tier, all, and ``./dev soak``."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

#: Whether this is a run of ``./dev soak``, in which random tests go on for long
SOAK = settings.default is settings.get_profile("soak")


def quick_first(values: Iterable[Any]) -> list[Any]:
    """Return the parameters of a test of which the quick tier takes the first alone; tuples are of several names."""
    first, *others = values
    return [first, *slow(others)]


def slow(values: Iterable[Any]) -> list[Any]:
    """Return parameters of a test that the quick tier leaves out; tuples are of several names."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow) for value in values
    ]
