"""Records: frozen dataclasses that take little time to import.

``dataclasses.dataclass(frozen=True)`` compiles six functions for each class, which was half of the time to import the
compiler and its 300 classes.  A record needs ``__init__`` alone, whose code it shares with records of the same form;
its other methods are closures or shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, asdict, dataclass, field, fields
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType
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
    forms: list[tuple[bool, bool, bool]] = []
    names: list[list[str]] = [[], []]  # of parameters: positional ones, and those after a star
    defaults: list[dict[str, Any]] = [{}, {}]
    for number, member in enumerate(members):
        has_factory, is_named = member.default_factory is not MISSING, bool(member.kw_only)
        forms.append((member.init, has_factory, is_named))
        scope[f"default{number}"] = member.default_factory if has_factory else member.default
        scope[f"assign{number}"] = getattr(cls, member.name).__set__ if slots else member.name
        if member.init:
            names[is_named].append(member.name)
            if has_factory or member.default is not MISSING:
                defaults[is_named][member.name] = MISSING if has_factory else member.default
            elif defaults[is_named] and not is_named:
                raise TypeError(f"'{member.name}' of {cls.__qualname__} has no default, but a field before it has")
    code = _initialiser_code(tuple(forms), slots, hasattr(cls, "__post_init__"))
    code = code.replace(co_varnames=("self", *names[0], *names[1]))
    initialiser = FunctionType(code, scope, "__init__", tuple(defaults[0].values()))
    initialiser.__kwdefaults__ = defaults[1]
    initialiser.__qualname__, initialiser.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return initialiser


@cache
def _initialiser_code(forms: tuple[tuple[bool, bool, bool], ...], slots: bool, has_post_init: bool) -> CodeType:
    """Return the code that ``__init__`` of many records has in common, but for the names of its parameters.

    ``forms`` says of each field whether it is a parameter, has a factory, and is given by name alone.
    """
    positional, named, body = ["self"], ["*"], []
    for number, (is_parameter, has_factory, is_named) in enumerate(forms):
        default = f"default{number}()" if has_factory else f"default{number}"
        value = f"field{number}" if is_parameter else default
        if is_parameter:
            (named if is_named else positional).append(value)
            value = f"{default} if {value} is MISSING else {value}" if has_factory else value
        body.append(f"assign{number}(self, {value})" if slots else f"assign(self, assign{number}, {value})")
    if has_post_init:
        body.append("self.__post_init__()")
    parameters = ", ".join(positional + (named if len(named) > 1 else []))
    scope: dict[str, Any] = {}
    exec("\n  ".join([f"def __init__({parameters}):", *body, "pass"]), scope)
    code: CodeType = scope["__init__"].__code__
    return code


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
