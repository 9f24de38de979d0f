"""Every case of every operator on every device, compared with a trusted runtime.

Memory is poisoned before a run, so an element that no kernel writes is a NaN or a -1 that no reference gives.

Covers: compiler/ops, compiler/kernels/ordering, compiler/kernels/rows, compiler/kernels/products.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ...support.cases import OperatorCase, all_cases, difference
from ...support.running import run_model

CASES = list(all_cases())


#: what drivers may do and WGSL allows: SwiftShader's exp gives 0 for NaN
DRIVER_LIMITS = {("SwiftShader", "Sigmoid-7"): "exp of NaN is 0 on this driver"}


def _compare(operator: OperatorCase, actual: Sequence[np.ndarray]) -> None:
    runtime, expected = operator.reference()
    for position, (left, right) in enumerate(zip(actual, expected, strict=True)):
        error = difference(left, right)
        assert error <= operator.case.tolerance, (
            f"output {position} differs from {runtime} by {error}:\n{left.dtype} {left.shape}\n{left}\n"
            f"{right.dtype} {right.shape}\n{right}"
        )


def _skip_if_host_only(operator: OperatorCase) -> None:
    """float64 and strings have no storage on a device; that such a graph is refused is tested elsewhere."""
    _, expected = operator.reference()
    dtypes = {array.dtype.name for array in (*expected, *operator.feeds.values())}
    if dtypes & {"float64", "object"}:
        pytest.skip("an operand or result has a type that lives on the host")


@pytest.mark.parametrize("operator", CASES, ids=lambda operator: operator.name)
def test_case(operator: OperatorCase, each_device):
    _skip_if_host_only(operator)
    for (driver, case), reason in DRIVER_LIMITS.items():
        if driver in each_device.name and operator.name == case:
            pytest.skip(reason)
    _compare(operator, run_model(each_device, operator.model(), operator.feeds))


@pytest.mark.parametrize("operator", CASES, ids=lambda operator: operator.name)
def test_case_of_constants(operator: OperatorCase, device):
    """Constant operands: folded on the host, or computed on the device when weights are made."""
    _skip_if_host_only(operator)
    _compare(operator, run_model(device, operator.model(constant=True), {}))
