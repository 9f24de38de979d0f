"""The node cases of the ONNX backend suite: which of them concern this project, and running them through a session.

A case is left out by a reason that is computed (kinds of values, element types, operators that the registry lacks), or
is in one of the two tables below: what is refused, and what cannot be compared.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import shaderloom
from shaderloom.compiler.ops.registry import registry
from shaderloom.runtime.device import Device
from shaderloom.runtime.dtypes import BY_NAME
from shaderloom.runtime.errors import ShaderloomError

#: Operators that the compiler resolves before it looks at the registry
STRUCTURAL = frozenset({"Constant", "If", "Loop", "Scan"})

#: Element types that a device holds
HELD = frozenset(dtype.onnx for dtype in BY_NAME.values() if dtype.on_device)

#: Cases that must be refused: operator and why.  The reason must be part of the error.
REFUSED: Mapping[str, str] = {
    "test_batchnorm_example_training_mode": "training mode",
    "test_batchnorm_epsilon_training_mode": "training mode",
    **{
        f"test_training_dropout{suffix}": "training mode"
        for suffix in ("", "_default", "_default_mask", "_mask", "_zero_ratio", "_zero_ratio_mask")
    },
    "test_scan_sum": "opset 8",
    "test_attention_local_window_gqa_rank4_mask_expanded": "float64",
}

#: Cases whose expected results another runtime need not give, and why
NOT_COMPARABLE: Mapping[str, str] = {
    **dict.fromkeys(
        ("test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"),
        "length_resized is the size of the output, a whole number; the suite takes scale times size before rounding",
    ),
    **dict.fromkeys(("test_bernoulli_seed", "test_bernoulli_seed_expanded"), "numbers of another generator"),
}


@dataclass(frozen=True)
class Outcome:
    """How a case went: passed, refused, wrong, or left out; and why."""

    name: str
    kind: str
    reason: str = ""


@functools.cache
def node_cases() -> tuple[Any, ...]:
    """All offline node cases, in the suite's order.  Making them takes some seconds."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return tuple(load_model_tests(kind="node"))


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the graphs inside them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes_of(attribute.g)


def why_left_out(model: onnx.ModelProto) -> str | None:
    """The reason for which a case does not concern a device, or None."""
    functions = {function.name for function in model.functions}
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"values of kind {kind}"
        element = value.type.tensor_type.elem_type
        if element not in HELD:
            return f"element type {TensorProto.DataType.Name(element)}"
    for node in nodes_of(model.graph):
        if node.domain == "ai.onnx.preview.training":
            return "training"
        known = node.op_type in STRUCTURAL or node.op_type in functions or has_body(model, node)
        if not known and registry.find(node.op_type, node.domain) is None:
            return f"no operator {node.domain or 'ai.onnx'}.{node.op_type}"
    return None


def has_body(model: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    """Whether the standard defines the operator by others, at the opset of the model."""
    versions = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}
    try:
        schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
    except (onnx.defs.SchemaError, KeyError):
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def arrays_of(protos: Sequence[Any]) -> list[np.ndarray]:
    """The tensors of a data set, which the suite has as protos or as arrays."""
    return [
        np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else numpy_helper.to_array(value)
        for value in protos
    ]


def run_model(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], device: Device) -> list[np.ndarray]:
    """The outputs of a model on ``device``."""
    with shaderloom.InferenceSession(model.SerializeToString(), device=device, cache=False) as session:
        return session.run(None, dict(feeds))


def run_case(case: Any, device: Device) -> Outcome:
    """Run every data set of a case on ``device``; see :func:`run_model`."""
    reason = why_left_out(case.model)
    if reason is not None:
        return Outcome(case.name, "left out", reason)
    names = [value.name for value in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        try:
            actual = run_model(case.model, dict(zip(names, arrays_of(inputs))), device)
        except ShaderloomError as error:
            return Outcome(case.name, "refused", str(error))
        for position, (left, right) in enumerate(zip(actual, arrays_of(outputs), strict=True)):
            difference = _difference(left, right, case.rtol, case.atol)
            if difference is not None:
                return Outcome(case.name, "wrong", f"output {position}: {difference}")
    return Outcome(case.name, "passed")


def _difference(actual: np.ndarray, expected: np.ndarray, relative: float, absolute: float) -> str | None:
    """What is wrong with a result.

    It may differ by one unit in the last place of the largest element: half-precision numbers are rounded once here and
    after every step of the suite's reference, and where the sum of large numbers is zero there, it is a rounding here.
    """
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    left, right = actual.astype(np.float64), expected.astype(np.float64)
    if expected.dtype.kind not in "iub":
        finite = right[np.isfinite(right)]
        largest = float(np.abs(finite).max(initial=0.0))
        absolute = max(absolute, float(ml_dtypes.finfo(expected.dtype).eps) * largest)
    if expected.dtype.kind in "iub":
        same = np.array_equal(actual, expected)
    else:
        same = np.allclose(left, right, rtol=relative, atol=absolute, equal_nan=True)
    if same:
        return None
    with np.errstate(all="ignore"):
        return f"largest difference {np.nanmax(np.abs(left - right))} beside {np.nanmax(np.abs(right))}"
