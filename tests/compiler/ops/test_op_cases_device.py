"""Every case of every operator on every device, compared with a trusted runtime.

Memory is poisoned before a run, so an element that no kernel writes is a NaN or a -1 that no reference gives.

Covers: compiler/ops, compiler/kernels/ml, compiler/kernels/ordering, compiler/kernels/rows, compiler/kernels/products.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ...conftest import ADAPTERS
from ...support.cases import OperatorCase, all_cases, assert_case, skip_if_host_only
from ...support.running import run_model

CASES = all_cases()


#: what drivers may do and WGSL allows: SwiftShader's exp gives 0 for NaN
DRIVER_LIMITS = {("SwiftShader", "Sigmoid-7"): "exp of NaN is 0 on this driver"}


def _on_each_device() -> Iterator[Any]:
    """All cases on each device; of each operator the quick tier takes eight on the first and three on the others."""
    for adapter in ADAPTERS:
        for operator in CASES:
            is_slow = operator.number >= (8 if adapter == ADAPTERS[0] else 3)
            marks = [pytest.mark.slow] if is_slow else []
            yield pytest.param(adapter, operator, marks=marks, id=f"{adapter}-{operator.name}")


@pytest.mark.parametrize(("each_device", "operator"), _on_each_device(), indirect=["each_device"])
def test_case(operator: OperatorCase, each_device):
    skip_if_host_only(operator)
    for (driver, case), reason in DRIVER_LIMITS.items():
        if driver in each_device.name and operator.name == case:
            pytest.skip(reason)
    assert_case(operator, run_model(each_device, operator.model(), operator.feeds))


@pytest.mark.parametrize("operator", CASES, ids=lambda operator: operator.name)
def test_case_of_constants(operator: OperatorCase, device):
    """Constant operands: folded on the host, or computed on the device when weights are made."""
    skip_if_host_only(operator)
    assert_case(operator, run_model(device, operator.model(constant=True), {}))
