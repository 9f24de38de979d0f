"""Models of one node from the cases in :mod:`tests.op_cases`, their operands, and what a trusted runtime gives."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper

import shaderloom.compiler.ops  # noqa: F401  (fills the registry)
from shaderloom.compiler.ops.registry import OpDef, registry
from shaderloom.runtime.plan.dtypes import BY_NAME, interface_dtype

from ..op_cases import cases_of
from ..op_cases.case import Case, Tensor
from . import contributed


@dataclass(frozen=True)
class OperatorCase:
    """One case of one operator as a model."""

    definition: OpDef
    case: Case
    number: int

    @property
    def name(self) -> str:
        domain = f"{self.definition.domain}." if self.definition.domain else ""
        return f"{domain}{self.definition.name}-{self.number}"

    @cached_property
    def operands(self) -> list[np.ndarray | None]:
        seed = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [None if tensor is None else make_operand(tensor, seed) for tensor in self.case.inputs]

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {
            f"x{position}": operand
            for position, (tensor, operand) in enumerate(zip(self.case.inputs, self.operands))
            if tensor is not None and operand is not None and not tensor.constant
        }

    @property
    def output_names(self) -> list[str]:
        return [f"y{position}" for position in range(self.case.outputs)]

    def model(
        self, dims: Mapping[str, Sequence[int | str]] | None = None, *, constant: bool = False
    ) -> onnx.ModelProto:
        """The model; ``dims`` gives declared shapes for the inputs, ``constant`` makes all of them initializers."""
        definition, case = self.definition, self.case
        names = ["" if tensor is None else f"x{position}" for position, tensor in enumerate(case.inputs)]
        attributes = {
            name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
            for name, value in case.attributes.items()
        }
        node = helper.make_node(definition.name, names, self.output_names, domain=definition.domain, **attributes)
        graph_inputs, initializers = [], []
        for name, tensor, operand in zip(names, case.inputs, self.operands):
            if tensor is None or operand is None:
                continue
            if tensor.constant or constant:
                initializers.append(numpy_helper.from_array(operand, name))
            else:
                shape = (dims or {}).get(name, operand.shape)
                graph_inputs.append(helper.make_tensor_value_info(name, BY_NAME[tensor.dtype].onnx, shape))
        outputs = [onnx.ValueInfoProto(name=name) for name in self.output_names]
        graph = helper.make_graph([node], "case", graph_inputs, outputs, initializers)
        opsets = [helper.make_opsetid("", case.opset or defs.onnx_opset_version())]
        if definition.domain:
            opsets.append(helper.make_opsetid(definition.domain, case.version))
        return helper.make_model(graph, opset_imports=opsets, ir_version=8 if case.opset else 10)

    @cached_property
    def reference(self) -> tuple[str, list[np.ndarray]]:
        """The name of the runtime that was asked, and its outputs: onnxruntime where it has the operator."""
        try:
            return "onnxruntime", run_onnxruntime(self.model(), self.feeds)
        except NotImplementedError:
            if contributed.has(self.definition.domain, self.definition.name):
                results = contributed.evaluate(
                    self.definition.name, self.operands, self.case.attributes, self.case.outputs
                )
                return "its description", results
            from onnx.reference import ReferenceEvaluator

            with np.errstate(all="ignore"):
                return "onnx.reference", [np.asarray(y) for y in ReferenceEvaluator(self.model()).run(None, self.feeds)]


def run_onnxruntime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs of onnxruntime with its optimisations off; NotImplementedError where it does not run the model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, feeds)
    except Exception as error:  # onnxruntime has no common base for its errors
        raise NotImplementedError(str(error)) from error


def make_operand(tensor: Tensor, generator: np.random.Generator) -> np.ndarray:
    """The elements of a case's operand."""
    dtype = interface_dtype(BY_NAME[tensor.dtype])
    if tensor.data is not None:
        array = np.asarray(tensor.data).astype(dtype)
        return array.reshape(tensor.shape) if tensor.shape else array
    if dtype == np.bool_:
        return generator.integers(0, 2, tensor.shape).astype(np.bool_)
    if BY_NAME[tensor.dtype].is_integer:
        return generator.integers(int(tensor.low), int(tensor.high) + 1, tensor.shape).astype(dtype)
    return generator.uniform(tensor.low, tensor.high, tensor.shape).astype(dtype)


@cache
def all_cases() -> tuple[OperatorCase, ...]:
    """Every case of every operator, with the operands and the reference that all tests of a process share."""
    return tuple(
        OperatorCase(definition, case, number)
        for definition in registry.all()
        for number, case in enumerate(cases_of(definition))
    )


def difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest error over the largest finite output; infinite where types, shapes, NaN or infinities differ.

    Integers and bools must be equal.
    """
    if expected.dtype == np.uint8 and actual.dtype.name.startswith("float8"):  # onnxruntime gives codes
        expected = expected.view(actual.dtype)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if not actual.size:
        return 0.0
    if "int" in actual.dtype.name or actual.dtype == np.bool_:
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    left, right = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(right)
    if not np.array_equal(np.isnan(left), np.isnan(right)) or not np.array_equal(
        left[~finite & ~np.isnan(right)], right[~finite & ~np.isnan(right)]
    ):
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(left[finite] - right[finite]).max() / max(np.abs(right[finite]).max(), 1e-30))


def assert_case(operator: OperatorCase, actual: Sequence[np.ndarray]) -> None:
    """Compare the outputs of a case with its reference, within the case's tolerance."""
    runtime, expected = operator.reference
    for position, (left, right) in enumerate(zip(actual, expected, strict=True)):
        error = difference(left, right)
        assert error <= operator.case.tolerance, (
            f"output {position} differs from {runtime} by {error}:\n{left.dtype} {left.shape}\n{left}\n"
            f"{right.dtype} {right.shape}\n{right}"
        )


def skip_if_host_only(operator: OperatorCase) -> None:
    """float64 and strings have no storage on a device; that such a graph is refused is tested elsewhere."""
    _, expected = operator.reference
    dtypes = {array.dtype.name for array in (*expected, *operator.feeds.values())}
    if dtypes & {"float64", "object"}:
        pytest.skip("an operand or result has a type that lives on the host")
