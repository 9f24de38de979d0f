"""AttributeProto -> Python values, and Python values -> the attributes dataclass of an operator."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...runtime.plan.errors import ModelError, Origin, UnsupportedError, close_to, nearest_first
from ..ir.constants import TensorSource
from ..ops.registry import OpDef
from .messages import AttributeProto, GraphProto, NodeProto, TensorProto

_Proto = AttributeProto


def read_attribute(attribute: AttributeProto, tensor: Callable[[TensorProto], TensorSource]) -> Any:
    """Return the value of an attribute: int, float, str, a tuple of those, a tensor's source, or a GraphProto.

    Raises :class:`UnsupportedError` for kinds that no supported operator has.
    """
    kind = attribute.type
    if kind == _Proto.INT:
        return attribute.i
    if kind == _Proto.INTS:
        return tuple(attribute.ints)
    if kind == _Proto.FLOAT:
        return attribute.f
    if kind == _Proto.FLOATS:
        return tuple(attribute.floats)
    if kind == _Proto.STRING:
        return attribute.s.decode("utf-8", "replace")
    if kind == _Proto.STRINGS:
        return tuple(text.decode("utf-8", "replace") for text in attribute.strings)
    if kind == _Proto.TENSOR:
        return tensor(attribute.t)
    if kind == _Proto.GRAPH:
        return attribute.g
    name = _Proto.AttributeType.Name(kind) if kind in _Proto.AttributeType.values() else str(kind)
    raise UnsupportedError(f"attribute '{attribute.name}' of kind {name} is not supported")


#: Kinds of attributes as types of their values; others have no two kinds that could be taken for each other
_TYPES: dict[int, Any] = {
    _Proto.INT: int,
    _Proto.INTS: tuple[int, ...],
    _Proto.FLOAT: float,
    _Proto.FLOATS: tuple[float, ...],
    _Proto.STRING: str,
    _Proto.STRINGS: tuple[str, ...],
    _Proto.TENSOR: TensorSource,
    _Proto.GRAPH: GraphProto,
}


def check_kinds(node: NodeProto, kinds: Mapping[str, int], values: Mapping[str, Any], origin: Origin) -> None:
    """Compare the attributes of ``node``, whose values are ``values``, with the ``kinds`` that the standard gives.

    Raises :class:`UnsupportedError` for one of another kind, before adapters of older versions look at it.
    """
    for attribute in node.attribute:
        kind = kinds.get(attribute.name, attribute.type)
        if attribute.type != kind and kind in _TYPES:
            raise _wrong_type(node.op_type, attribute.name, values[attribute.name], _TYPES[kind], origin)


def _wrong_type(operator: str, name: str, value: Any, expected: Any, origin: Origin) -> UnsupportedError:
    error = UnsupportedError(
        f"attribute '{name}' of {operator} must be {_describe(expected)}, not {type(value).__name__}",
        origin=origin,
        hint=f"{_describe(type(value))} {value!r:.60} was given",
    )
    error.fault, error.supported = f"attribute '{name}'", (_describe(expected),)
    return error


@functools.cache
def _fields(attributes: type) -> dict[str, tuple[Any, bool]]:
    """Return the fields of an attributes dataclass by name: type, and whether an attribute must give the value."""
    hints = typing.get_type_hints(attributes)
    missing = dataclasses.MISSING
    return {
        item.name: (hints[item.name], item.default is missing and item.default_factory is missing)
        for item in dataclasses.fields(attributes)
    }


def typed_attributes(definition: OpDef, values: dict[str, Any], origin: Origin) -> Any:
    """Return an instance of ``definition.attributes`` built from ``values``.

    Raises :class:`UnsupportedError` for an attribute that the operator does not have here or that has the wrong type,
    :class:`ModelError` for a missing one.
    """
    fields = _fields(definition.attributes)
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            error = UnsupportedError(
                f"attribute '{name}' of {definition.name} is not supported ({value!r:.60} was given)",
                origin=origin,
                hint=_nearest(name, fields),
            )
            error.fault, error.supported = f"attribute '{name}'", tuple(nearest_first(name, fields))
            raise error
        expected = fields[name][0]
        converted = _convert(value, expected)
        if converted is _WRONG:
            choices = _choices(expected)
            if any(type(each) is type(value) for each in choices):
                raise UnsupportedError.of_attribute(definition.name, name, value, choices, origin=origin)
            raise _wrong_type(definition.name, name, value, expected, origin)
        arguments[name] = converted
    for name, (_, required) in fields.items():
        if required and name not in arguments:
            raise ModelError(
                f"{definition.name} needs the attribute '{name}'",
                origin=origin,
                hint=f"it is {_describe(fields[name][0])}",
            )
    try:
        return definition.attributes(**arguments)
    except ValueError as error:  # from the dataclass's own checks
        raise UnsupportedError(f"attributes of {definition.name}: {error}", origin=origin) from None


def _nearest(name: str, supported: Iterable[str]) -> str:
    """Return a hint for an unsupported attribute: the supported one with the most similar name, else all of them."""
    names = nearest_first(name, supported)
    if names and close_to(name, names[0]):
        return f"the nearest supported attribute is {names[0]}"
    return f"supported are {', '.join(sorted(names))}" if names else "the operator has no attributes"


def _choices(expected: Any) -> tuple[Any, ...]:
    """Return the permitted values of an attribute's type if it is a literal type, else an empty tuple."""
    if typing.get_origin(expected) is typing.Literal:
        return typing.get_args(expected)
    if typing.get_origin(expected) in (typing.Union, types.UnionType):
        return tuple(choice for each in typing.get_args(expected) for choice in _choices(each))
    return ()


_WRONG = object()


def _convert(value: Any, expected: Any) -> Any:
    """Convert ``value`` to the annotated type ``expected``; return ``_WRONG`` if that is impossible."""
    if expected is Any:
        return value
    origin = typing.get_origin(expected)
    if origin in (typing.Union, types.UnionType):
        for choice in typing.get_args(expected):
            converted = _convert(value, choice)
            if converted is not _WRONG:
                return converted
        return _WRONG
    if origin is typing.Literal:
        return value if value in typing.get_args(expected) else _WRONG
    if origin is tuple:
        element = typing.get_args(expected)[0]
        if not isinstance(value, tuple):
            return _WRONG
        items = tuple(_convert(item, element) for item in value)
        return _WRONG if any(item is _WRONG for item in items) else items
    if expected is type(None):
        return None if value is None else _WRONG
    if expected is bool:
        return bool(value) if isinstance(value, int) and value in (0, 1) else _WRONG
    if expected is float:
        return float(value) if isinstance(value, float) else _WRONG
    if expected is int:
        return int(value) if isinstance(value, int) else _WRONG
    if expected is np.ndarray and not isinstance(value, np.ndarray):
        read = getattr(value, "read", None)
        return read() if read is not None else _WRONG
    try:
        return value if isinstance(value, expected) else _WRONG
    except TypeError:  # a protocol that cannot be checked
        return value if hasattr(value, "read") else _WRONG


def _describe(expected: Any) -> str:
    choices = _choices(expected)
    if choices:
        return f"one of {', '.join(map(str, choices))}"
    return expected.__name__ if type(expected) is type else str(expected).replace("typing.", "")
