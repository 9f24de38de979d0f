"""Operator cases of a browser runtime's test suite; skipped where the folder beside the repository is missing."""

from __future__ import annotations

import pytest

from ..support.operator_suite import FOLDER
from . import expected
from .cases import ConformanceCase, web_cases
from .running import run_case

CASES = web_cases()


@pytest.mark.skipif(not CASES, reason=f"{FOLDER.name} is not beside the repository")
def test_the_suite_is_there():
    assert len(CASES) > 300
    names = [case.key for case in CASES]
    assert len(set(names)) == len(names)
    assert {key for key in expected.by_case() if key.startswith("web/")} <= set(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: ConformanceCase, device):
    group = expected.by_case().get(case.key)
    if group is not None and group.kind == "unsound":
        pytest.skip(group.reason)
    text = expected.unexpected(run_case(case, device))
    assert text is None, text
