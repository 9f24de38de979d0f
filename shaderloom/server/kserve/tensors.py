"""Tensors of requests and answers: numbers in JSON, or bytes behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...model.header import NodeArg
from ...runtime.plan.dtypes import BY_NAME, interface_dtype
from ..errors import RequestError

#: Names of element types in the protocol
DATATYPES = {
    "bool": "BOOL",
    **{f"{kind}{bits}": f"{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
    "bfloat16": "BF16",
    "string": "BYTES",
}
_TYPES = {name: kind for kind, name in DATATYPES.items() if kind != "string"}
#: Dimensions of a tensor
RANK = 32


def wrong(place: str, problem: str) -> RequestError:
    """Return the error for a part of a request."""
    return RequestError(400, f"{place} {problem}", field=place)


def read_tensor(place: str, value: Any, rest: memoryview) -> tuple[str, np.ndarray, int]:
    """Return the name of an input, its array, and how many of the bytes behind the JSON are its own."""
    fields = objects(place, value, {"name", "shape", "datatype", "data", "parameters"})
    name, datatype = fields.get("name"), fields.get("datatype")
    if not isinstance(name, str):
        raise wrong(place, "has no name")
    place = f"input '{name:.80}'"
    if not isinstance(datatype, str) or datatype not in _TYPES:
        raise wrong(place, f"has the datatype {datatype!r:.40}, which is none of {', '.join(_TYPES)}")
    shape = _shape(place, fields.get("shape"))
    dtype = interface_dtype(BY_NAME[_TYPES[datatype]])
    parameters = objects(f"parameters of {place}", fields.get("parameters", {}), {"binary_data_size"})
    if "binary_data_size" not in parameters:
        if "data" not in fields:
            raise wrong(place, "has no data")
        return name, _from_json(place, fields["data"], shape, dtype), 0
    if "data" in fields:
        raise wrong(place, "has data in JSON and behind it")
    size, wanted = parameters["binary_data_size"], math.prod(shape) * dtype.itemsize
    if type(size) is not int or size != wanted:
        raise wrong(place, f"has a binary_data_size of {size!r:.40}; its shape takes {wanted:,} bytes")
    if size > len(rest):
        raise wrong(place, f"has {size:,} bytes, of which the body has {len(rest):,}")
    data = rest[:size]
    if dtype == np.bool_:
        return name, (np.frombuffer(data, np.uint8) != 0).reshape(shape), size
    return name, np.frombuffer(data, np.uint8).copy().view(dtype).reshape(shape), size


def objects(place: str, value: Any, names: set[str]) -> dict[str, Any]:
    """Return an object that has no other fields than ``names``."""
    if not isinstance(value, dict):
        raise wrong(place, "is not an object")
    for name in value:
        if name not in names:
            raise wrong(place, f"has '{name:.80}', which is not supported")
    return value


def _shape(place: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > RANK or not all(type(size) is int for size in value):
        raise wrong(place, f"has no shape, a list of up to {RANK} sizes")
    if not all(0 <= size < 1 << 48 for size in value):
        raise wrong(place, "has a shape with a size out of range")
    return tuple(value)


def _from_json(place: str, data: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    """Return the array of a list, nested or flat."""
    if not isinstance(data, list):
        raise wrong(place, "has data that is not a list")
    numbers = data
    while any(isinstance(each, list) for each in numbers):
        if not all(isinstance(each, list) for each in numbers):
            raise wrong(place, "has lists of unequal depth")
        numbers = [each for inner in numbers for each in inner]
    if len(numbers) != math.prod(shape):
        raise wrong(place, f"has {len(numbers):,} numbers; its shape takes {math.prod(shape):,}")
    allowed = {bool} if dtype == np.bool_ else {int} if np.issubdtype(dtype, np.integer) else {int, float}
    if not {type(each) for each in numbers} <= allowed:
        raise wrong(place, f"has data that is not of its datatype, {DATATYPES[dtype.name]}")
    try:
        with np.errstate(over="raise"):
            array = np.array(numbers, dtype).reshape(shape)
        if not np.isfinite(array).all():  # what Python makes of 1e400
            raise OverflowError
    except (ArithmeticError, ValueError):
        raise wrong(place, f"has numbers beyond its datatype, {DATATYPES[dtype.name]}") from None
    return array


def write_tensor(name: str, array: Any, *, binary: bool) -> tuple[dict[str, Any], bytes]:
    """Return the JSON of an output, and the bytes behind it.

    Raises :class:`RequestError` for numbers that JSON does not have, and element types that the protocol does not.
    """
    kind = array.dtype.name if isinstance(array, np.ndarray) else "no tensor"
    datatype = DATATYPES.get(kind)
    if datatype is None:
        raise RequestError(400, f"output '{name:.80}' is {kind}, which the protocol does not have")
    head: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
    if binary:
        return head | {"parameters": {"binary_data_size": array.nbytes}}, array.tobytes()
    numbers = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    if np.issubdtype(numbers.dtype, np.floating) and not np.isfinite(numbers).all():
        raise RequestError(400, f"output '{name:.80}' has numbers that JSON does not have; ask for binary data")
    return head | {"data": numbers.reshape(-1).tolist()}, b""


def described(port: NodeArg) -> Mapping[str, Any]:
    """Return what clients are told of an input or an output; -1 is a size that the model leaves open."""
    kind = port.type.removeprefix("tensor(").removesuffix(")")
    datatype = DATATYPES.get({"float": "float32", "double": "float64"}.get(kind, kind), kind)
    return {
        "name": port.name,
        "datatype": datatype,
        "shape": [size if isinstance(size, int) else -1 for size in port.shape],
    }
