"""The cases of the suites: models with inputs and expected outputs, and what they are about.

=========  ===========================================================================================================
suite      cases
=========  ===========================================================================================================
node       operator cases of the installed onnx, with data (``onnx.backend.test``)
models     its small models: of several operators, and exported from PyTorch
web        operator cases of a browser runtime, from the folder that ``SHADERLOOM_WEB_SUITE`` names
real       trained models and exporter graphs, where they are available, against onnxruntime (:mod:`.models`)
=========  ===========================================================================================================
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from . import web_suite

SUITES = ("node", "models", "web", "real")
#: Operators whose bodies are what a case is about
STRUCTURAL = ("SequenceMap", "Scan", "Loop", "If")
_EXPANDED = re.compile(r"_expanded(_ver\d+|_function)?$")


@dataclass(frozen=True)
class DataSet:
    """Inputs in the model's order, and the outputs that are expected."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


@dataclass(frozen=True)
class Loaded:
    """What is run: a model and its data."""

    model: onnx.ModelProto
    data_sets: tuple[DataSet, ...]
    relative: float
    absolute: float


@dataclass(frozen=True)
class ConformanceCase:
    """``operator`` is what the case is about, ``types`` the element types of inputs and outputs, by ONNX's names."""

    suite: str
    name: str
    operator: str
    types: frozenset[str]
    load: Callable[[], Loaded] | None = None  #: None for whole models, which are measured in another way

    @property
    def key(self) -> str:
        return f"{self.suite}/{self.name}"


def suite_cases(suite: str) -> tuple[ConformanceCase, ...]:
    """The cases of a suite in its order; none where its data is missing.  Making them may take seconds."""
    return {"node": node_cases, "models": small_model_cases, "web": web_cases, "real": real_model_cases}[suite]()


# -- the suite of onnx -------------------------------------------------------------------------------------------------


@functools.cache
def node_cases() -> tuple[ConformanceCase, ...]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    operators = {case.name: _operator(case.model.graph) for case in found}
    return tuple(
        ConformanceCase(
            "node",
            case.name,
            operators.get(_EXPANDED.sub("", case.name), operators[case.name]),
            _types(case.model.graph),
            functools.partial(_load_node, case),
        )
        for case in found
    )


def _load_node(case: Any) -> Loaded:
    data_sets = tuple(DataSet(values(inputs), values(outputs)) for inputs, outputs in case.data_sets)
    return Loaded(case.model, data_sets, case.rtol, case.atol)


@functools.cache
def small_model_cases() -> tuple[ConformanceCase, ...]:
    from onnx.backend.test.loader import load_model_tests

    result = []
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for case in load_model_tests(kind=kind):
            folder = Path(case.model_dir)
            graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
            load = functools.partial(_load_folder, folder, case.rtol, case.atol)
            result.append(ConformanceCase("models", case.name, _operator(graph), _types(graph), load))
    return tuple(result)


def _load_folder(folder: Path, relative: float, absolute: float) -> Loaded:
    model = onnx.load(folder / "model.onnx")
    sets = []
    for path in sorted(folder.glob("test_data_set_*")):
        inputs = [_read(path / f"input_{n}.pb", port) for n, port in enumerate(model.graph.input)]
        outputs = [_read(path / f"output_{n}.pb", port) for n, port in enumerate(model.graph.output)]
        present = [value for value in inputs if value is not None]  # those with an initializer have no file
        sets.append(DataSet(values(present), values(outputs)))
    return Loaded(model, tuple(sets), relative, absolute)


def _read(path: Path, port: onnx.ValueInfoProto) -> Any:
    if not path.is_file():
        return None
    kinds = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
    proto = kinds.get(port.type.WhichOneof("value"), onnx.TensorProto)()
    proto.ParseFromString(path.read_bytes())
    return proto


def values(found: Sequence[Any]) -> tuple[Any, ...]:
    """Protos or arrays as what a session takes and gives: arrays, lists of them, None."""
    return tuple(_value(each) for each in found)


def _value(each: Any) -> Any:
    if isinstance(each, onnx.TensorProto):
        return numpy_helper.to_array(each)
    if isinstance(each, onnx.SequenceProto):
        return numpy_helper.to_list(each)
    if isinstance(each, onnx.OptionalProto):
        return numpy_helper.to_optional(each)
    if isinstance(each, (list, tuple)):
        return [_value(item) for item in each]
    return np.asarray(each) if isinstance(each, np.generic) else each


def _operator(graph: onnx.GraphProto) -> str:
    present = [node.op_type for node in graph.node]
    for name in STRUCTURAL:
        if name in present:
            return name
    node = graph.node[-1]
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def _types(graph: onnx.GraphProto) -> frozenset[str]:
    return frozenset(_element_type(port.type) for port in (*graph.input, *graph.output))


def _element_type(kind: onnx.TypeProto) -> str:
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        return "sequence"
    if which == "optional_type":
        return "optional"
    return TensorProto.DataType.Name(kind.tensor_type.elem_type)


# -- operators of a browser runtime ------------------------------------------------------------------------------------


@functools.cache
def web_cases() -> tuple[ConformanceCase, ...]:
    return tuple(_web_case(case) for case in web_suite.cases())


def _web_case(case: web_suite.SuiteCase) -> ConformanceCase:
    operator = f"{case.domain}.{case.operator}" if case.domain else case.operator
    tensors = [tensor for tensor in (*case.inputs, *case.outputs) if tensor is not None]
    types = frozenset(TensorProto.DataType.Name(web_suite.element_type(tensor[0])) for tensor in tensors)

    def load() -> Loaded:
        data = DataSet(tuple(case.feeds.values()), tuple(case.expected))
        return Loaded(case.model(), (data,), web_suite.RELATIVE, web_suite.ABSOLUTE)

    return ConformanceCase("web", case.name, operator, types, load)


# -- whole models ------------------------------------------------------------------------------------------------------


@functools.cache
def real_model_cases() -> tuple[ConformanceCase, ...]:
    """Those for a GPU are among them; see :mod:`.models` for how a model is measured."""
    from .models import real_models

    return tuple(ConformanceCase("real", each.name, each.model, frozenset()) for each in real_models())
