"""The structure of a bundle's JSON: what each field is, by the table that the JavaScript runner shares.

The table is ``runtime/web/shaderloom/schema.js``, its reader there ``structure.js``: both give the same verdict on any
bytes, by the same rule at the same place.  Relations between fields are in :mod:`.manifest_relations` and
:mod:`.plan_relations`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from ..plan.format import format_problem
from ..plan.size_bounds import LARGEST

_PLAIN = re.compile(r"[A-Za-z_]\w*")
_KEY = re.compile(r"[0-9a-f]{64}")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: A type with the number of its items: T[9], T[1..9], T{9}; without a number there are at most those of the table
_MANY = re.compile(r"(.+)([\[{])(?:(\d+)\.\.)?(\d*)[\]}]")
_OPERATORS = ("+", "*", "//", "%", "min", "max")

Check = Callable[[Any], None]


class Refusal(ValueError):
    """A field that is not as the format says: the rule that it breaks, and where it is."""

    def __init__(self, rule: str, reason: str, *path: str | int) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason
        self.path: list[str | int] = list(path)

    def __str__(self) -> str:
        names = [
            f".{part}" if isinstance(part, str) and _PLAIN.fullmatch(part) else f"[{part!r}]" for part in self.path
        ]
        return f"{''.join(names).removeprefix('.') or 'it'} {self.reason}"


@cache
def schema() -> Any:
    """Return the shared table."""
    text = (files("shaderloom.runtime") / "web" / "shaderloom" / "schema.js").read_text(encoding="utf-8")
    return json.loads(text.partition("SCHEMA = ")[2].rstrip().removesuffix(";"))


def fields_of(kind: str) -> dict[str, str]:
    """Return the types of the fields of a record of the table, by name."""
    return {name: form for name, _, form in _fields(schema()["types"][kind])}


def _fields(record: list[str]) -> list[tuple[str, bool, str]]:
    """Return name, whether it may be missing, and type of each field."""
    parts = [field.partition(": ") for line in record for field in line.split(", ")]
    return [(name.removesuffix("?"), name.endswith("?"), form) for name, _, form in parts]


def most_of(kind: str, field: str) -> int:
    """Return how many items a field of a record of the table has at most."""
    many = _MANY.fullmatch(fields_of(kind)[field])
    assert many is not None
    return int(many[4] or schema()["items"])


def read(content: bytes, kind: str) -> Any:
    """Return the JSON value of a ``manifest`` or ``plan`` whose fields are all of their types.

    Integers are ints also where they are written like floats, which JavaScript does not tell apart.  Raises
    :class:`Refusal`.
    """
    value = parse(content, schema()["bytes"][kind])
    _check(kind)(value)
    return value


def parse(content: bytes, most: int) -> Any:
    """Return the value of JSON of at most ``most`` bytes, UTF-8, without NaN and nested as deep as the table says."""
    if len(content) > most:
        raise Refusal("json", f"has {len(content):,} bytes, more than any bundle needs")
    try:
        value = json.loads(content.decode(), parse_constant=_no_number, parse_float=_number, parse_int=_number)
    except RecursionError:
        raise Refusal("json", "is nested too deeply") from None
    except ValueError as error:
        raise Refusal("json", f"is not JSON: {error}") from None
    level = [value]
    for _ in range(schema()["depth"]):
        level = [item for part in level for item in _items(part) if isinstance(item, (list, dict))]
        if not level:
            return value
    raise Refusal("json", "is nested too deeply")


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _number(text: str) -> int | float:
    if len(text) < 16 and text.lstrip("-").isdigit():
        return int(text)
    value = float(text)
    return int(value) if abs(value) <= LARGEST and value.is_integer() else value


def in_order(names: Iterable[str]) -> list[str]:
    """Return names in JavaScript's order, by 16-bit units."""
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


@cache
def _check(kind: str) -> Check:
    """Return the check of a type by its name: one that is built in, or one of the table."""
    return _BUILT_IN[kind] if kind in _BUILT_IN else _check_of(schema()["types"][kind])


def _named(kind: str) -> Check:
    """Return the check of a type by its name, looked up when it is used: a type may be part of itself."""
    return lambda value: _check(kind)(value)


def _check_of(form: Any) -> Check:
    """Return the check of a type, in the notation that the table explains."""
    if isinstance(form, list):
        return _record(form)
    if isinstance(form, dict):
        return _kinds({kind: _check_of(item) for kind, item in form.items()})
    if form.startswith("("):
        return _tuple([_check_of(item) for item in form[1:-1].split(", ")])
    if form.endswith("?"):
        return _or_null(_check_of(form[:-1]))
    if many := _MANY.fullmatch(form):
        item, bracket, least, most = many.groups()
        check, most = _check_of(item), int(most or schema()["items"])
        return _list(check, int(least or 0), most) if bracket == "[" else _map(check, most)
    if "|" in form:
        return _one_of(form.split("|"))
    return _BUILT_IN[form] if form in _BUILT_IN else _named(form)


def _within(name: str | int, check: Check, value: Any) -> None:
    try:
        check(value)
    except Refusal as refusal:
        refusal.path.insert(0, name)
        raise


def _record(record: list[str]) -> Check:
    checks = [(name, is_optional, _check_of(form)) for name, is_optional, form in _fields(record)]

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Refusal("type", "is not an object")
        for name, is_optional, inner in checks:
            if name in value:
                _within(name, inner, value[name])
            elif not is_optional:
                raise Refusal("missing", "is missing", name)

    return check


def _kinds(checks: dict[str, Check]) -> Check:
    """Return the check of a record whose field ``kind`` says which record it is."""
    tagged = _record([f"kind: {'|'.join(checks)}"])

    def check(value: Any) -> None:
        tagged(value)
        checks[value["kind"]](value)

    return check


def _list(inner: Check, least: int, most: int) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, list):
            raise Refusal("type", "is not a list")
        if not least <= len(value) <= most:
            raise Refusal("count", f"has {len(value):,} items; {least} to {most:,} are allowed")
        for index, item in enumerate(value):
            _within(index, inner, item)

    return check


def _map(inner: Check, most: int) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Refusal("type", "is not an object")
        if len(value) > most:
            raise Refusal("count", f"has {len(value):,} items; 0 to {most:,} are allowed")
        for name in in_order(value):
            _within(name, _text, name)
            _within(name, inner, value[name])

    return check


def _tuple(inners: list[Check]) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, list):
            raise Refusal("type", "is not a list")
        if len(value) != len(inners):
            raise Refusal("count", f"has {len(value):,} items instead of {len(inners)}")
        for index, (inner, item) in enumerate(zip(inners, value)):
            _within(index, inner, item)

    return check


def _one_of(choices: list[str]) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, str) or value not in choices:
            raise Refusal("choice", f"is none of {', '.join(choices)}")

    return check


def _or_null(inner: Check) -> Check:
    def check(value: Any) -> None:
        if value is not None:
            inner(value)

    return check


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise Refusal("type", "is not a string")
    if _SURROGATE.search(value):
        raise Refusal("text", "has half of a character")


def _key(value: Any) -> None:
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise Refusal("key", "is not 64 hex digits")


def _format(value: Any) -> None:
    if problem := format_problem(value):
        raise Refusal("format", problem)


def _integer(value: Any) -> None:
    if type(value) is not int or abs(value) > LARGEST:
        raise Refusal("number", "is not an integer from -2^53 + 1 to 2^53 - 1")


def _count(value: Any) -> None:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise Refusal("number", "is not an integer from 0 to 2^53 - 1")


def _finite(value: Any) -> None:
    if type(value) not in (int, float) or abs(value) == float("inf"):
        raise Refusal("number", "is not a finite number")


def _flag(value: Any) -> None:
    if not isinstance(value, bool):
        raise Refusal("type", "is neither true nor false")


def _dtype(value: Any) -> None:
    if not isinstance(value, str) or not (value in schema()["dtypes"] or value in schema()["other dtypes"]):
        raise Refusal("dtype", "is no element type")


def _device_dtype(value: Any) -> None:
    if not isinstance(value, str) or value not in schema()["dtypes"]:
        raise Refusal("dtype", "is no element type that a device holds")


def _dim(value: Any) -> None:
    (_text if isinstance(value, str) else _count)(value)


def _setting(value: Any) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            _within(index, _setting, item)
    elif isinstance(value, str):
        _text(value)
    elif type(value) in (int, float):
        _finite(value)
    elif value is not None and not isinstance(value, bool):
        raise Refusal("type", "is an object")


def _base64(value: Any) -> None:
    _text(value)
    padding = value.find("=")
    if len(value) % 4 or re.search("[^A-Za-z0-9+/=]", value) or (padding >= 0 and value[padding:] not in ("=", "==")):
        raise Refusal("base64", "is not base64 data")


def _size(value: Any) -> None:
    """Check a number that may depend on symbols: an integer, a name, or [operator, operand, ...]."""
    limits, nodes = schema()["size"], 0
    level = [value]
    for _ in range(limits["depth"]):
        nodes += len(level)
        if nodes > limits["nodes"]:
            raise Refusal("size", f"has more than {limits['nodes']:,} parts")
        following = []
        for item in level:
            if isinstance(item, str):
                _text(item)
            elif not isinstance(item, list):
                _integer(item)
            elif len(item) < 2 or not isinstance(item[0], str) or item[0] not in _OPERATORS:
                raise Refusal("size", "is no operator with operands")
            elif item[0] not in ("+", "*") and len(item) != 3:
                raise Refusal("size", f"has a '{item[0]}' of {len(item) - 1} operands")
            elif item[0] in ("//", "%") and not (type(item[2]) is int and 0 < item[2] <= LARGEST):
                raise Refusal("size", "divides by something else than a positive number")
            else:
                following += item[1:]
        if not following:
            return
        level = following
    raise Refusal("size", "is nested too deeply")


_BUILT_IN: dict[str, Check] = {
    "text": _text, "key": _key, "format": _format, "integer": _integer, "count": _count, "number": _finite,
    "flag": _flag, "dtype": _dtype, "device dtype": _device_dtype, "dim": _dim, "setting": _setting,
    "base64": _base64, "size": _size,
}  # fmt: skip
