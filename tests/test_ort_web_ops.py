"""Operator cases of a browser runtime's test suite; skipped where the folder beside the repository is missing."""

from __future__ import annotations

import numpy as np
import pytest

from .support.node_cases import run_model, why_left_out
from .support.operator_suite import FOLDER, SuiteCase, cases

CASES = list(cases())

#: Tolerances of that suite
ABSOLUTE, RELATIVE = 1e-3, 1e-5

#: Cases that no runtime can pass by the specification, and why
UNSOUND = {
    **dict.fromkeys(("quick-gelu-0-0", "quick-gelu-0-1"), "the expected numbers are wrong"),
    "resize-0-0": "the region of the channels reaches beyond them; the specification extrapolates there",
    "shape-0-0": "Shape gives int64, the case expects int32",
    **{f"fast-gelu-1-{number}": "the bias does not broadcast to the last axis" for number in range(2, 6)},
    **{
        f"fused-conv-{number}": "an operator that the other runtime's layout pass makes for itself"
        for number in ("1-0", "1-1", "4-0", "8-0")
    },
}


@pytest.mark.skipif(not CASES, reason=f"{FOLDER.name} is not beside the repository")
def test_the_suite_is_there():
    assert len(CASES) > 300
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) and set(UNSOUND) <= set(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: SuiteCase, device):
    if case.name in UNSOUND:
        pytest.skip(UNSOUND[case.name])
    model = case.model()
    left_out = why_left_out(model)
    if left_out is not None and left_out.startswith("element type"):
        pytest.skip(left_out)
    actual = run_model(model, case.feeds, device)
    for left, right in zip(actual, case.expected, strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        np.testing.assert_allclose(
            left.astype(np.float64), right.astype(np.float64), RELATIVE, ABSOLUTE, err_msg=case.name
        )
