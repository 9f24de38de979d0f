"""Records of plans as JSON values, and back, by the annotations of their fields."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .dimension import DimExpr

Record = TypeVar("Record")

#: Returns the value of JSON data, or raises :class:`_Mismatch`
_Decoder = Callable[[Any], Any]

_PLAIN = frozenset((str, int, float, bool, type(None)))
_OPERATORS = frozenset(("+", "*", "//", "%", "min", "max"))


class _Mismatch(ValueError):
    """Data of another type than expected; ``path`` leads there, outermost name first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str] = []


def encode(value: Any) -> Any:
    """Return JSON values for a record, or for anything that one may hold.

    Tuples become lists, bytes become ``{"base64": text}``.  A record whose class has a variable ``kind`` is written
    with it, which tells the members of a union apart.  Raises :class:`TypeError` for a value without such a form.
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return [item if type(item) in _PLAIN else encode(item) for item in value]
    form = _form(kind)
    if form is not None:
        tag, names = form
        items = {name: encode(getattr(value, name)) for name in names}
        return items if tag is None else {"kind": tag, **items}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    raise TypeError(f"a {kind.__name__} has no JSON form")


@cache
def _form(kind: type) -> tuple[str | None, tuple[str, ...]] | None:
    """Return the kind and the fields with which records of a class are written; None for other classes."""
    return (_kind_of(kind), tuple(_field_types(kind))) if is_dataclass(kind) else None


def digest(value: Any) -> str:
    """Return the sha256 of the canonical JSON text of JSON values, in hex."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def decode(data: Any, record: type[Record], name: str) -> Record:
    """Return the record that :func:`encode` turned into ``data``.

    Fields that the record does not have are ignored: a newer minor version of the format may add them.  Raises
    :class:`ValueError`, which calls the data ``name``, if the data are not of the annotated types.
    """
    expected: Any = record
    try:
        result: Record = _decoder(expected)(data)
    except _Mismatch as error:
        raise ValueError(f"{'.'.join([name, *error.path])} {error}") from None
    return result


@cache
def _decoder(expected: Any) -> _Decoder:
    """Return the decoder of an annotated type."""
    origin, arguments = get_origin(expected), get_args(expected)
    if expected is Any:
        return _decode_any
    if expected == DimExpr:
        return _decode_dim
    if origin in (Union, UnionType):
        return _union_decoder(arguments)
    if origin is tuple:
        return _tuple_decoder(arguments)
    if origin in (dict, Mapping):
        return _mapping_decoder(_decoder(arguments[1]))
    if is_dataclass(expected):
        return _record_decoder(expected)
    if issubclass(expected, Enum):
        return _enum_decoder(expected)
    return _decode_bytes if expected is bytes else _plain_decoder(expected)


def _plain_decoder(expected: type) -> _Decoder:
    def run(data: Any) -> Any:
        if type(data) is expected:
            return data
        if expected is float and type(data) is int:
            return float(data)
        raise _Mismatch(f"is not of type {expected.__name__}")

    return run


def _enum_decoder(expected: type[Enum]) -> _Decoder:
    members = {member.value: member for member in expected}

    def run(data: Any) -> Any:
        if type(data) is not str or data not in members:
            raise _Mismatch(f"is no {expected.__name__}")
        return members[data]

    return run


def _record_decoder(record: Any) -> _Decoder:
    kind, decoders = _kind_of(record), {name: _decoder(item) for name, item in _field_types(record).items()}

    def run(data: Any) -> Any:
        if isinstance(data, dict) and kind is not None and data.get("kind") != kind:
            raise _Mismatch(f"has the kind {data.get('kind')!r}, which this version does not know")
        if not isinstance(data, dict) or not decoders.keys() <= data.keys():
            raise _Mismatch(f"does not have the fields of {record.__name__}")
        values = {}
        for name, decoder in decoders.items():
            try:
                values[name] = decoder(data[name])
            except _Mismatch as error:
                error.path.insert(0, name)
                raise
        return record(**values)

    return run


@cache
def _field_types(record: type) -> dict[str, Any]:
    types = get_type_hints(record)
    return {field.name: types[field.name] for field in fields(record)}


@cache
def _kind_of(record: type) -> str | None:
    """Return the kind of a record that is a member of a union."""
    return None if "kind" in _field_types(record) else getattr(record, "kind", None)


def _tuple_decoder(items: tuple[Any, ...]) -> _Decoder:
    if items[-1] is Ellipsis:
        every = _decoder(items[0])

        def run_all(data: Any) -> Any:
            if not isinstance(data, list):
                raise _Mismatch("is not a list")
            return tuple([every(item) for item in data])

        return run_all
    decoders = [_decoder(item) for item in items]

    def run(data: Any) -> Any:
        if not isinstance(data, list):
            raise _Mismatch("is not a list")
        if len(data) != len(decoders):
            raise _Mismatch(f"has {len(data)} elements instead of {len(decoders)}")
        return tuple([decoder(item) for decoder, item in zip(decoders, data)])

    return run


def _mapping_decoder(decoder: _Decoder) -> _Decoder:
    def run(data: Any) -> Any:
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise _Mismatch("is not an object")
        values = {}
        for key, item in data.items():
            try:
                values[key] = decoder(item)
            except _Mismatch as error:
                error.path.insert(0, key)
                raise
        return values

    return run


def _union_decoder(members: tuple[Any, ...]) -> _Decoder:
    optional = type(None) in members
    decoders = [_decoder(member) for member in members if member is not type(None)]
    records: list[Any] = [member for member in members if is_dataclass(member)]
    by_kind = {_kind_of(record): _decoder(record) for record in records if _kind_of(record) is not None}

    def run(data: Any) -> Any:
        if optional and data is None:
            return None
        if len(decoders) == 1:
            return decoders[0](data)
        if by_kind and isinstance(data, dict):
            kind = data.get("kind")
            if not isinstance(kind, str) or kind not in by_kind:
                raise _Mismatch(f"has the kind {kind!r}, which this version does not know")
            return by_kind[kind](data)
        for decoder in decoders:
            try:
                return decoder(data)
            except _Mismatch:
                continue
        raise _Mismatch("has a wrong type")

    return run


def _decode_any(data: Any) -> Any:
    """Return a value of ``Kernel.config``: hashable, so its lists were tuples."""
    return tuple(_decode_any(item) for item in data) if isinstance(data, list) else data


def _decode_bytes(data: Any) -> bytes:
    if not isinstance(data, dict) or set(data) != {"base64"} or not isinstance(data["base64"], str):
        raise _Mismatch("is not base64 data")
    try:
        return base64.b64decode(data["base64"], validate=True)
    except ValueError:
        raise _Mismatch("is not base64 data") from None


def _decode_dim(data: Any) -> DimExpr:
    kind = type(data)
    if kind is int or kind is str:
        result: int | str = data
        return result
    if not isinstance(data, list) or len(data) < 2 or not isinstance(data[0], str) or data[0] not in _OPERATORS:
        raise _Mismatch("is not a dimension")
    return [data[0], *(_decode_dim(operand) for operand in data[1:])]
