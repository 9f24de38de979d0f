"""Every case of every operator on every device, compared with a trusted runtime.

Memory is poisoned before a run, so an element that no kernel writes is a NaN or a -1 that no reference gives.

Covers: compiler/ops, compiler/kernels/ml, compiler/kernels/ordering, compiler/kernels/rows, compiler/kernels/products.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from ...conftest import ADAPTERS
from ...support.cases import OperatorCase, all_cases, assert_case, difference, skip_if_host_only
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


@pytest.mark.slow
@pytest.mark.parametrize("view", ["Reshape", "Transpose"])
@pytest.mark.parametrize("part", range(8))
def test_packed_results_behind_a_view(view: str, part: int, device):
    """A view that joins or turns axes, as the only reader of a result that has several elements in a word."""
    compared = 0
    for operator in CASES[part::8]:
        result = operator.reference[1][0]
        if result.dtype.itemsize >= 4 or not result.size or result.ndim < 2:
            continue
        model = operator.model()
        if view == "Reshape":
            model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "shape"))
            model.graph.node.append(helper.make_node(view, ["y0", "shape"], ["y"]))
        else:
            model.graph.node.append(helper.make_node(view, ["y0"], ["y"], perm=range(result.ndim)[::-1]))
        del model.graph.output[:]
        model.graph.output.append(onnx.ValueInfoProto(name="y"))
        (viewed,) = run_model(device, model, operator.feeds)
        expected = result.reshape(-1) if view == "Reshape" else result.T
        assert difference(viewed, expected) <= operator.case.tolerance, operator.name
        compared += 1
    assert compared > 10
