"""Texts of a model are UTF-8.  protobuf's parser does not insist: it hands out those that are not as bytes."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ...runtime.plan.errors import ModelError


def check_texts(message: Any) -> None:
    """Raise :class:`ModelError` if a text anywhere in the protobuf ``message`` is not UTF-8."""
    single, repeated, nested, lists = _fields(message.DESCRIPTOR)
    for name in single:
        if not isinstance(value := getattr(message, name), str):
            _refuse(message, name, value)
    for name in repeated:
        for value in getattr(message, name):
            if not isinstance(value, str):
                _refuse(message, name, value)
    for name in nested:
        if message.HasField(name):
            check_texts(getattr(message, name))
    for name in lists:
        for item in getattr(message, name):
            check_texts(item)


def _refuse(message: Any, field: str, value: bytes) -> None:
    kind = message.DESCRIPTOR.name
    raise ModelError(f"the field '{field}' of a {kind} is not UTF-8: {value[:40]!r}")


@functools.cache
def _fields(kind: Descriptor) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the field names of a message type: strings, repeated strings, messages, repeated messages."""
    names: tuple[list[str], list[str], list[str], list[str]] = ([], [], [], [])
    for field in kind.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            names[_is_repeated(field)].append(field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            names[2 + _is_repeated(field)].append(field.name)
    return names


def _is_repeated(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)  # before protobuf 6.31
