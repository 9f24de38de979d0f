"""onnx's reference evaluator for models of 16-bit floats: nodes are computed in float32.

onnx's evaluator adds up halves as halves: the mean of 2,048 tokens is wrong by a percent, the sum of a large image is
infinite.  Here a tensor that is declared float16 or bfloat16 is a float32 array, and its declared type is kept by name.
It is rounded once, where the file names it, unless that makes it infinite: then it stays as it is, as in onnxruntime on
the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

_FLOAT16, _BFLOAT16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
_BY_CODE = {onnx.TensorProto.FLOAT16: _FLOAT16, onnx.TensorProto.BFLOAT16: _BFLOAT16}
#: The 16-bit types of tensors, by name, of a model and all its nested graphs
_Types = dict[str, np.dtype[Any]]


class HalfEvaluator:
    """Evaluates a model in float32; ``rounds``: named tensors are rounded to the types that they are declared to have.

    Raises what onnx's evaluator raises.
    """

    def __init__(self, proto: onnx.ModelProto, *, rounds: bool = True) -> None:
        self._types: _Types = {}
        # nested graphs are evaluated by the class of the outer one
        kind = type("Evaluator", (_Evaluator,), {"types": self._types, "rounds": rounds})
        self._evaluator = kind(proto)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Return the outputs in order, in the types that the model declares."""
        wide = {name: _widened(self._types, name, value) for name, value in feeds.items()}
        results = self._evaluator.run(None, wide)
        return [_narrowed(result, self._types.get(name)) for name, result in zip(self._evaluator.output_names, results)]


class _Evaluator(ReferenceEvaluator):
    """Evaluates one graph of the model."""

    types: _Types
    rounds: bool

    def _init(self) -> None:
        super()._init()
        if isinstance(self.proto_, onnx.FunctionProto):
            return  # what an operator of the standard is made of is no tensor of the file
        for name, array in self.rt_inits_.items():
            self.rt_inits_[name] = _widened(self.types, name, array)
        for node in self.rt_nodes_:
            node.run = _WideNode(node, self.types, self.rounds)


class _WideNode:
    """Runs one node on float32 operands, and rounds what it gives."""

    def __init__(self, node: Any, types: _Types, rounds: bool) -> None:
        self._node, self._types, self._rounds = node, types, rounds
        self._run = node.run
        self._proto: onnx.NodeProto = node.onnx_node

    def __call__(self, *operands: Any, **options: Any) -> tuple[Any, ...]:
        proto = self._proto
        code = getattr(self._node, "to", None) if proto.op_type == "Cast" else None
        if code in _BY_CODE and operands[0].dtype.kind not in "OUS":
            results: Sequence[Any] = (operands[0].astype(np.float32),)
            declared = [_BY_CODE[code]]
        elif proto.op_type == "BitCast":
            operand = _narrowed(operands[0], self._types.get(proto.input[0]))
            results, declared = self._run(operand, **options), [None]
        else:
            self._enter_body()
            results = self._run(*operands, **options)
            declared = [self._declared(position) for position in range(len(results))]
        return tuple(map(self._named, proto.output, results, declared))

    def _named(self, name: str, result: Any, declared: np.dtype[Any] | None) -> Any:
        """Return a result as the tensor ``name``."""
        result = _widened(self._types, name, result, declared)
        dtype = self._types.get(name)
        if dtype is None or not self._rounds or not isinstance(result, np.ndarray):
            return result
        with np.errstate(over="ignore"):
            rounded = result.astype(dtype).astype(np.float32)
        return np.where(np.isinf(rounded), result, rounded).astype(np.float32, copy=False)

    def _bodies(self) -> list[Any]:
        bodies = (getattr(self._node, attribute, None) for attribute in ("body", "then_branch", "else_branch"))
        return [body for body in bodies if isinstance(body, ReferenceEvaluator)]

    def _enter_body(self) -> None:
        """Give the inputs of a loop's body the types of the node's operands."""
        if self._proto.op_type in ("Loop", "Scan"):
            for body in self._bodies():
                for name, operand in zip(body.input_names, self._proto.input):
                    _note(self._types, name, self._types.get(operand))

    def _declared(self, position: int) -> np.dtype[Any] | None:
        """Return the 16-bit type of a result: that of a body's output, or of an operand of the same type parameter."""
        bodies = self._bodies()
        if bodies:
            inside = position + (self._proto.op_type == "Loop")  # its first output is the condition
            declared = (self._types.get(body.output_names[inside]) for body in bodies)
            return next((dtype for dtype in declared if dtype is not None), None)
        schema = self._node._schema
        if schema is None or not schema.outputs:
            return None
        parameter = _type_parameter(schema.outputs, position)
        for place, name in enumerate(self._proto.input):
            if _type_parameter(schema.inputs, place) == parameter and name in self._types:
                return self._types[name]
        return None


def _type_parameter(formals: Sequence[Any], position: int) -> str:
    formal = formals[min(position, len(formals) - 1)]  # the last may stand for several
    return str(getattr(formal, "type_str", None) or formal.typeStr)  # the name before onnx 1.19


def _note(types: _Types, name: str, dtype: np.dtype[Any] | None) -> None:
    if dtype is None:
        types.pop(name, None)
    else:
        types[name] = dtype


def _widened(types: _Types, name: str, value: Any, declared: np.dtype[Any] | None = None) -> Any:
    """Return a value in float32 and note its 16-bit type: its own, or what is ``declared`` for float32."""
    first = value[0] if isinstance(value, list) and value else value
    dtype = first.dtype if isinstance(first, np.ndarray) else None
    if dtype not in (_FLOAT16, _BFLOAT16):
        _note(types, name, declared if dtype == np.float32 else None)
        return value
    _note(types, name, dtype)
    return [each.astype(np.float32) for each in value] if isinstance(value, list) else value.astype(np.float32)


def _narrowed(value: Any, dtype: np.dtype[Any] | None) -> Any:
    """Return a value in its declared type."""
    if dtype is None or value is None:
        return value
    return [each.astype(dtype) for each in value] if isinstance(value, list) else value.astype(dtype)
