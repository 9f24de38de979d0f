"""What a node computes, by a trusted runtime, and how far the rounding of what came before moves it.

Every value of a growing graph is known thrice: as computed, and with every inexact result moved by what rounding may
do, one way and the other (:class:`Known`).  A node whose result differs among the three by more than a small part of
the tolerance is not added: it is ill-conditioned there, or jumps (a comparison of equal numbers, a rounding half way).
So integers and bools that two correct programs compute are equal, and floats are near, whatever the operators are.

The runtime is onnxruntime with its optimisations off.  Where it lacks a type, half-precision numbers are computed in
single precision and rounded, which is how a device does it; what is left is done by onnx's reference evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import helper

from shaderloom.runtime.plan.dtypes import BY_NAME, from_numpy

from ...support import contributed
from .forms import NARROW, Form
from .source import Unsuitable

#: what one operation may move a result by, relative: several units in the last place of its type
ROUNDING = {"float32": 2.0**-20, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: tolerances by the coarsest type on the way to a value, relative to the largest element
TOLERANCE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 6e-2}
#: the part of the tolerance that rounding may move a value by
SHARE = 0.3
#: magnitudes stay far from where types end
LARGEST = {"float32": 1e4, "float16": 500.0, "bfloat16": 1e4}
#: approximations of functions that end near 0 have an absolute error
SMALLEST = 1e-3
LARGEST_INTEGER = 2.0**30
HALVES = ("float16", "bfloat16")
#: operators that are exact on few binary digits in any order of computing; besides all that only move elements
EXACT = frozenset(
    {"Abs", "Add", "Cast", "CastLike", "Ceil", "Clip", "Floor", "Max", "Min", "Mul", "Neg", "ReduceMax", "ReduceMin"}
    | {"ReduceSum", "Relu", "Round", "Sign", "Sub", "Sum", "Where"}
)

Array = np.ndarray


@dataclass(frozen=True)
class Known:
    """A value of the graph: its elements, two moved copies (the same arrays while it is exact), its coarsest type."""

    name: str
    array: Array
    moved: tuple[Array, Array]
    coarsest: str = "float32"

    @property
    def dtype(self) -> str:
        return dtype_of(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def exact(self) -> bool:
        return self.moved[0] is self.array

    @property
    def tolerance(self) -> float:
        """The largest error over the largest element; integers and bools are equal."""
        return TOLERANCE[self.coarsest] if is_float(self.array) else 0.0


def dtype_of(array: Array) -> str:
    """The name of the element type."""
    return from_numpy(array.dtype).name


def onnx_type(name: str) -> int:
    """ONNX's code of the element type."""
    return BY_NAME[name].onnx


def is_float(array: Array) -> bool:
    """Whether elements may differ by rounding; those of 8-bit and narrower floats are codes, which are equal."""
    return array.dtype.name in TOLERANCE


def is_code(array: Array) -> bool:
    """Whether the type is one that numpy does not compute with, so that bits are compared."""
    return not is_float(array) and array.dtype.kind not in "iub"


def bits_of(array: Array) -> Array:
    """Elements as they are compared where they must be equal."""
    return array.view(np.uint8) if is_code(array) else array


def exactly(name: str, array: Array) -> Known:
    dtype = array.dtype.name
    return Known(name, array, (array, array), dtype if dtype in HALVES else "float32")


Run = Callable[[Sequence[Array | None]], list[Array]]


def compute(
    form: Form,
    node: onnx.NodeProto,
    operands: Sequence[Known | None],
    opset: int,
    types: Sequence[str],
    runtime: list[int] | None = None,
) -> list[Known]:
    """The node's results; :class:`Unsuitable` if no runtime has them, or if they are no fair test.

    ``types`` gives the element type of each output as far as those of the operands tell it: "" if they do not, with a
    question mark if it has that type or single precision does.  ``runtime`` keeps which of the runtimes took the node:
    for other operands it is asked again, as another one may take what is a mistake.
    """
    plain = [None if operand is None else operand.array for operand in operands]
    if form.name in ("Div", "Mod") and plain[1] is not None and plain[1].dtype.kind in "iu" and not plain[1].all():
        raise Unsuitable  # onnxruntime ends the process
    run = _runner(node, plain, opset, types, [] if runtime is None else runtime)
    results = run(plain)
    for result, dtype in zip(results, types):
        if dtype and not dtype.endswith("?") and dtype_of(result) != dtype:
            raise Unsuitable  # numpy widened it
    present = [operand for operand in operands if operand is not None]
    exact = all(operand.exact for operand in present)
    moved = (
        [results, results]
        if exact
        else [run([None if each is None else each.moved[way] for each in operands]) for way in range(2)]
    )
    if not exact and not all(map(is_float, results)):
        _check_even(results, run([None if each is None else _evened(each) for each in operands]))
    order = list(TOLERANCE)
    coarsest = max((each.coarsest for each in present), key=order.index, default="float32")
    known = []
    for position, result in enumerate(results):
        ways = (moved[0][position], moved[1][position])
        kind = max((coarsest, result.dtype.name), key=order.index) if is_float(result) else coarsest
        _check(result, ways, kind)
        if is_float(result) and not _stays_exact(form.name, result, present, exact):
            ways = _round(result, ways, kind)
        elif exact or not is_float(result):
            ways = (result, result)
        known.append(Known(node.output[position], result, ways, kind))
    return known


def _evened(value: Known) -> Array:
    """Rounded to a few units in the last place of the largest element: numbers that are nearly equal are equal."""
    largest = np.abs(value.array.astype(np.float64)).max(initial=0.0) if is_float(value.array) else 0.0
    if value.exact or largest == 0.0:
        return value.array
    step = 2.0 ** np.ceil(np.log2(4 * ROUNDING[value.array.dtype.name] * largest))
    return np.asarray(np.rint(value.array.astype(np.float64) / step) * step).astype(value.array.dtype)


def _check_even(results: Sequence[Array], others: Sequence[Array]) -> None:
    """Integers and bools must not depend on whether nearly equal numbers are equal: moved copies never are."""
    for result, other in zip(results, others):
        if not is_float(result) and not (
            other.shape == result.shape and np.array_equal(bits_of(other), bits_of(result))
        ):
            raise Unsuitable


def _check(result: Array, ways: Sequence[Array], coarsest: str) -> None:
    if any(way.shape != result.shape or way.dtype != result.dtype for way in ways):
        raise Unsuitable
    if not is_float(result):
        if result.dtype.itemsize > 1 and is_code(result):
            raise Unsuitable  # a string, or a double
        if not all(np.array_equal(bits_of(way), bits_of(result)) for way in ways):
            raise Unsuitable
        if result.dtype.itemsize >= 4 and result.size and np.abs(result.astype(np.float64)).max() > LARGEST_INTEGER:
            raise Unsuitable
        return
    wide = result.astype(np.float64)
    largest = np.abs(wide).max(initial=0.0)
    if not np.isfinite(wide).all() or largest > LARGEST[result.dtype.name] or 0 < largest < SMALLEST:
        raise Unsuitable
    for way in ways:
        spread = np.abs(way.astype(np.float64) - wide).max(initial=0.0)
        if not spread <= SHARE * TOLERANCE[coarsest] * largest:
            raise Unsuitable


def _stays_exact(op: str, result: Array, operands: Sequence[Known], exact: bool) -> bool:
    """Whether nothing is rounded: elements are only moved, or few binary digits are added or multiplied."""
    elements = [operand.array for operand in operands if operand.array.dtype == result.dtype]
    wide = result.astype(np.float64).ravel()
    if (
        elements
        and np.isin(wide, np.concatenate([[0.0], *(each.astype(np.float64).ravel() for each in elements)])).all()
    ):
        return True
    if not exact or op not in EXACT:
        return False
    digits = {"float32": 22, "float16": 9, "bfloat16": 6}[result.dtype.name]
    scaled = wide * 2.0**6
    return bool((scaled == np.rint(scaled)).all() and np.abs(scaled).max(initial=0.0) < 2.0**digits)


def _round(result: Array, ways: Sequence[Array], kind: str) -> tuple[Array, Array]:
    """The moved copies, moved on by what rounding may do here: element by element another way."""
    wide = result.astype(np.float64)
    largest = np.abs(wide).max(initial=0.0)
    generator = np.random.default_rng(result.size)
    step = ROUNDING[result.dtype.name] * (np.abs(wide) + largest / 4) * generator.uniform(0.5, 1.0, result.shape)
    step *= generator.choice([-1.0, 1.0], result.shape)
    if largest == 0.0:
        step = step + 1e-30
    more, less = ways
    return (more.astype(np.float64) + step).astype(result.dtype), (less.astype(np.float64) - step).astype(result.dtype)


# -- runtimes --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _session_options() -> Any:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return options


def _model(node: onnx.NodeProto, arrays: Sequence[Array | None], opset: int) -> onnx.ModelProto:
    ports = {}
    for name, array in zip(node.input, arrays):
        if array is not None:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            ports[name] = helper.make_tensor_value_info(name, kind, array.shape)
    graph = helper.make_graph(
        [node], "node", list(ports.values()), [onnx.ValueInfoProto(name=name) for name in node.output if name]
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8 if opset < 20 else 10)


def _feeds(node: onnx.NodeProto, arrays: Sequence[Array | None]) -> dict[str, Array]:
    return {name: array for name, array in zip(node.input, arrays) if array is not None}


def _runner(
    node: onnx.NodeProto, arrays: Sequence[Array | None], opset: int, types: Sequence[str], chosen: list[int]
) -> Run:
    kinds = [array.dtype.name for array in arrays if array is not None]
    attempts: list[Callable[[], Run]] = []
    if "bfloat16" not in kinds:
        attempts.append(lambda: _onnxruntime(node, arrays, opset))
    if any(kind in HALVES for kind in kinds):
        attempts.insert(0, lambda: _widened(node, arrays, opset, types))
    if contributed.has(node.domain, node.op_type):
        attempts.append(lambda: _described(node))
    attempts.append(lambda: _reference(node, arrays, opset))
    for position, attempt in enumerate(attempts):
        if chosen and chosen[0] != position:
            continue
        try:
            run = attempt()
            run(arrays)
            chosen[:] = [position]
            return _guarded(run)
        except Exception:  # runtimes have no common base for what they lack
            continue
    raise Unsuitable


def _guarded(run: Run) -> Run:
    def guarded(arrays: Sequence[Array | None]) -> list[Array]:
        try:
            return run(arrays)
        except Exception:  # what moved operands make of it
            raise Unsuitable from None

    return guarded


def _onnxruntime(node: onnx.NodeProto, arrays: Sequence[Array | None], opset: int) -> Run:
    import onnxruntime

    model = _model(node, arrays, opset).SerializeToString()
    session = onnxruntime.InferenceSession(model, _session_options(), providers=["CPUExecutionProvider"])
    kinds = [_numpy_type(port.type) for port in session.get_outputs()]

    def run(arrays: Sequence[Array | None]) -> list[Array]:
        results = [np.asarray(result) for result in session.run(None, _feeds(node, arrays))]
        # 8-bit floats come as their bits
        return [each if kind is None or each.dtype == kind else each.view(kind) for each, kind in zip(results, kinds)]

    return run


def _numpy_type(text: str) -> Any:
    """The numpy type of what onnxruntime calls ``tensor(float8e4m3fn)``; None for types that numpy has."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return helper.tensor_dtype_to_np_dtype(onnx_type(name)) if name in NARROW else None


def _widened(node: onnx.NodeProto, arrays: Sequence[Array | None], opset: int, types: Sequence[str]) -> Run:
    """Computed in single precision and rounded once."""
    if node.op_type in ("Cast", "CastLike", "BitCast", "ConstantOfShape", "EyeLike"):
        raise Unsuitable  # the type itself matters

    def widen(array: Array | None) -> Array | None:
        return array.astype(np.float32) if array is not None and array.dtype.name in HALVES else array

    def narrow(result: Array, dtype: str) -> Array:
        kind = dtype.rstrip("?")
        if result.dtype != np.float32 or kind not in HALVES:
            return result
        return result.astype(helper.tensor_dtype_to_np_dtype(BY_NAME[kind].onnx))

    run = _onnxruntime(node, [widen(array) for array in arrays], opset)
    return lambda arrays: [narrow(*pair) for pair in zip(run([widen(array) for array in arrays]), types)]


def _described(node: onnx.NodeProto) -> Run:
    """By our own words for operators that no runtime here has."""
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return lambda arrays: contributed.evaluate(node.op_type, arrays, attributes, len(node.output))


def _reference(node: onnx.NodeProto, arrays: Sequence[Array | None], opset: int) -> Run:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(_model(node, arrays, opset))

    def run(arrays: Sequence[Array | None]) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(result) for result in evaluator.run(None, _feeds(node, arrays))]

    return run
