"""Records: frozen dataclasses that take little time to import.

``dataclasses.dataclass(frozen=True)`` compiles six functions for each class, which was half of the time to import the
compiler and its 300 classes.  A record compiles ``__init__`` alone; its other methods are closures or shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, asdict, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def record(cls: type[T]) -> type[T]: ...
@overload
def record(*, eq: bool = True, slots: bool = True) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[Any] | None = None, *, eq: bool = True, slots: bool = True) -> Any:
    """Make of a class what ``dataclass(frozen=True, eq=eq, slots=slots)`` makes of it; methods that it defines stay.

    Records inherit from records, not from other dataclasses, nor these from them.
    """
    return (lambda plain: _record(plain, eq, slots)) if cls is None else _record(cls, eq, slots)


def fields_by_name(item: Any) -> dict[str, Any]:
    """Return what ``dataclasses.asdict`` does, soon where all values are simple."""
    values = {name: getattr(item, name) for name in item.__dataclass_fields__}
    return values if _SIMPLE.issuperset(map(type, values.values())) else asdict(item)


_SIMPLE = frozenset({bool, int, float, str, type(None)})


def _record(plain: type[Any], eq: bool, slots: bool) -> type[Any]:
    own = set(plain.__dict__)
    if "__eq__" in own:
        own.discard("__hash__")  # Python has set it to None
    if plain.__doc__ is None:
        plain.__doc__ = plain.__name__  # else dataclass writes the signature there, which takes longer than the rest
    cls = dataclass(init=False, repr=False, eq=False, slots=slots)(plain)
    members = fields(cls)
    methods = {
        "__init__": _initialiser(cls, members, slots),
        "__repr__": _represent,
        "__setattr__": _refuse_assignment,
        "__delattr__": _refuse_deletion,
    }
    if slots:
        methods |= {"__getstate__": _state, "__setstate__": _restore}
    if eq:
        methods |= _comparison(members)
    for name in methods.keys() - own:
        setattr(cls, name, methods[name])
    return cls


def _initialiser(cls: type[Any], members: Sequence[Field[Any]], slots: bool) -> Callable[..., None]:
    """Return ``__init__``: it sets the slots, or the attributes that ``__setattr__`` refuses to set."""
    scope: dict[str, Any] = {"MISSING": MISSING, "assign": object.__setattr__}
    positional: list[str] = []
    named: list[str] = []  #: after a star
    body: list[str] = []
    for number, member in enumerate(members):
        parameter = value = member.name
        if member.default is not MISSING:
            scope[f"default{number}"] = member.default
            parameter = f"{parameter}=default{number}"
        elif member.default_factory is not MISSING:
            scope[f"default{number}"] = member.default_factory
            parameter, value = f"{parameter}=MISSING", f"default{number}() if {value} is MISSING else {value}"
        if not member.init:
            value = f"default{number}" + "()" * (member.default is MISSING)
        else:
            (named if member.kw_only else positional).append(parameter)
        if slots:
            scope[f"assign{number}"] = getattr(cls, member.name).__set__
            body.append(f"assign{number}(self, {value})")
        else:
            body.append(f"assign(self, {member.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    exec("\n  ".join([f"def __init__({parameters}):", *body, "pass"]), scope)
    initialiser: Callable[..., None] = scope["__init__"]
    initialiser.__qualname__, initialiser.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return initialiser


def _comparison(members: Sequence[Field[Any]]) -> dict[str, Callable[..., Any]]:
    """Return ``__eq__`` and ``__hash__`` over the fields that are compared."""
    names = [member.name for member in members if member.compare]
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def equals(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equals, "__hash__": lambda self: hash(values(self))}


@recursive_repr()
def _represent(self: Any) -> str:
    items = ", ".join(f"{member.name}={getattr(self, member.name)!r}" for member in fields(self) if member.repr)
    return f"{self.__class__.__qualname__}({items})"


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, member.name) for member in fields(self)]


def _restore(self: Any, state: Sequence[Any]) -> None:
    for member, value in zip(fields(self), state):
        object.__setattr__(self, member.name, value)
