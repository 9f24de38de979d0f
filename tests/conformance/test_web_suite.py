"""Operator cases of a browser runtime's test suite on the default device; see :mod:`.web_suite` for where they are."""

from __future__ import annotations

import pytest

from . import expected
from .cases import ConformanceCase, web_cases
from .running import run_case

pytestmark = pytest.mark.soak

CASES = web_cases()


@pytest.mark.skipif(not CASES, reason="SHADERLOOM_WEB_SUITE names no folder of cases")
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
