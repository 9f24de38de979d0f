"""Records of plans as JSON values, and back, by the annotations of their fields."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .dimension import DimExpr

Record = TypeVar("Record")


def encode(value: Any) -> Any:
    """Return JSON values for a record, or for anything that one may hold.

    Tuples become lists, bytes become ``{"base64": text}``.  A record whose class has a variable ``kind`` is written
    with it, which tells the members of a union apart.  Raises :class:`TypeError` for a value without such a form.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if is_dataclass(value):
        record: Any = type(value)
        items = {name: encode(getattr(value, name)) for name in _field_types(record)}
        kind = _kind_of(record)
        return items if kind is None else {"kind": kind, **items}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def digest(value: Any) -> str:
    """Return the sha256 of the canonical JSON text of JSON values, in hex."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def decode(data: Any, record: type[Record], name: str) -> Record:
    """Return the record that :func:`encode` turned into ``data``.

    Fields that the record does not have are ignored: a newer minor version of the format may add them.  Raises
    :class:`ValueError`, which calls the data ``name``, if the data are not of the annotated types.
    """
    result: Record = _decode(data, record, name)
    return result


def _decode(data: Any, expected: Any, name: str) -> Any:
    if expected is Any:  # a value of Kernel.config: hashable, so its lists were tuples
        return tuple(_decode(item, Any, name) for item in data) if isinstance(data, list) else data
    if expected == DimExpr:
        return _decode_dim(data, name)
    if isinstance(expected, type) and is_dataclass(expected):
        return _decode_record(data, expected, name)
    origin = get_origin(expected)
    if origin in (Union, UnionType):
        return _decode_union(data, get_args(expected), name)
    if origin is tuple:
        return _decode_tuple(data, get_args(expected), name)
    if origin in (dict, Mapping):
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise ValueError(f"{name} is not an object")
        return {key: _decode(item, get_args(expected)[1], f"{name}.{key}") for key, item in data.items()}
    if isinstance(expected, type) and issubclass(expected, Enum):
        if data not in [member.value for member in expected]:
            raise ValueError(f"{name} is no {expected.__name__}")
        return expected(data)
    if expected is bytes:
        if not isinstance(data, dict) or set(data) != {"base64"} or not isinstance(data["base64"], str):
            raise ValueError(f"{name} is not base64 data")
        return base64.b64decode(data["base64"], validate=True)
    if expected is float and type(data) is int:
        return float(data)
    if type(data) is not expected:
        raise ValueError(f"{name} is not of type {expected.__name__}")
    return data


def _decode_record(data: Any, expected: Any, name: str) -> Any:
    types = _field_types(expected)
    kind = _kind_of(expected)
    if kind is not None and isinstance(data, dict) and data.get("kind") != kind:
        raise ValueError(f"{name} has the kind {data.get('kind')!r}, which this version does not know")
    if not isinstance(data, dict) or not types.keys() <= data.keys():
        raise ValueError(f"{name} does not have the fields of {expected.__name__}")
    return expected(**{field: _decode(data[field], kind, f"{name}.{field}") for field, kind in types.items()})


@cache
def _field_types(record: type) -> dict[str, Any]:
    types = get_type_hints(record)
    return {field.name: types[field.name] for field in fields(record)}


@cache
def _kind_of(record: type) -> str | None:
    """Return the kind of a record that is a member of a union."""
    return None if "kind" in _field_types(record) else getattr(record, "kind", None)


def _decode_tuple(data: Any, items: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise ValueError(f"{name} is not a list")
    if items[-1] is Ellipsis:
        return tuple(_decode(item, items[0], name) for item in data)
    if len(data) != len(items):
        raise ValueError(f"{name} has {len(data)} elements instead of {len(items)}")
    return tuple(_decode(item, kind, name) for item, kind in zip(data, items))


def _decode_union(data: Any, members: tuple[Any, ...], name: str) -> Any:
    for member in members:
        if member is type(None):
            if data is None:
                return None
            continue
        try:
            return _decode(data, member, name)
        except ValueError:
            continue
    raise ValueError(f"{name} has a wrong type")


def _decode_dim(data: Any, name: str) -> DimExpr:
    if type(data) in (int, str):
        result: int | str = data
        return result
    if not isinstance(data, list) or len(data) < 2 or data[0] not in ("+", "*", "//", "%", "min", "max"):
        raise ValueError(f"{name} is not a dimension")
    return [data[0], *(_decode_dim(operand, name) for operand in data[1:])]
