"""A record behaves as the frozen dataclass that it stands for."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import pytest

from shaderloom.runtime.plan.record import fields_by_name, record


def define(decorator):
    """Two classes, one derived from the other, with every kind of field."""

    @decorator
    class Base:
        number: int
        text: str = "t"

    @decorator
    class Derived(Base):
        kind: ClassVar[str] = "derived"
        items: list = field(default_factory=list, compare=False)
        hidden: float = field(default=1.5, repr=False)
        fixed: int = field(default=7, init=False)
        named: int = field(default=2, kw_only=True)

        def __post_init__(self):
            self.items.append(self.number)

    return Base, Derived


@record
class Slotted:
    a: int
    b: tuple[int, ...] = ()


@record(slots=False)
class Plain:
    """With a document."""

    a: int
    b: tuple[int, ...] = ()


@record
class Empty:
    pass


@pytest.mark.parametrize("slots", [True, False])
def test_it_is_as_the_dataclass_is(slots):
    base, derived = define(record(slots=slots))
    same_base, same_derived = define(dataclass(frozen=True, slots=slots))
    for made, expected in ((base, same_base), (derived, same_derived)):
        assert made.__match_args__ == expected.__match_args__
        assert [f.name for f in dataclasses.fields(made)] == [f.name for f in dataclasses.fields(expected)]
        ours, theirs = inspect.signature(made).parameters, inspect.signature(expected).parameters
        assert [(p.name, p.kind) for p in ours.values()] == [(p.name, p.kind) for p in theirs.values()]
        assert hasattr(made(1), "__dict__") == hasattr(expected(1), "__dict__") == (not slots)
        assert repr(made(3, "x")).replace("define.<locals>.", "") == repr(expected(3, "x")).replace(
            "define.<locals>.", ""
        )
        assert made(3, "x") == made(3, text="x") != made(4, "x")
        assert hash(made(3, "x")) == hash(made(3, "x"))
    one, other = derived(1, "u", [5], 2.5, named=9), same_derived(1, "u", [5], 2.5, named=9)
    assert dataclasses.asdict(one) == dataclasses.asdict(other)
    assert one == derived(1, "u", [6], 2.5, named=9), "items are not compared"
    assert one != derived(1, "u", [5], 2.5, named=8)
    assert derived(1).items == [1]
    assert derived(1).items is not derived(1).items
    assert base(1) != derived(1)
    assert dataclasses.replace(base(1), text="v") == base(1, "v")
    with pytest.raises(TypeError, match="missing 1 required"):
        base()
    with pytest.raises(TypeError, match="unexpected"):
        base(1, none=2)


def test_records_of_one_form_keep_their_names_and_defaults_apart():
    @record
    class Size:
        width: int
        height: int = 3

    @record
    class Name:
        first: str
        last: str = "x"

    assert Size.__init__.__code__.co_code == Name.__init__.__code__.co_code
    assert (Size(width=1), Name(first="a", last="b")) == (Size(1, 3), Name("a", "b"))
    with pytest.raises(TypeError, match="'first'"):
        Name(last="b")
    with pytest.raises(TypeError, match="no default"):

        @record
        class Wrong:
            first: str = "x"
            last: str


@pytest.mark.parametrize("kind", [Slotted, Plain])
def test_an_instance_cannot_change_and_can_be_copied(kind):
    one = kind(1, (2,))
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        one.a = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del one.a
    for twin in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert twin == one
        assert twin is not one
    match one:
        case Slotted(a, b) | Plain(a, b):
            assert (a, b) == (1, (2,))


def test_methods_of_the_class_stay():
    @record
    class Own:
        a: int

        def __eq__(self, other):
            return True

        def __repr__(self):
            return "own"

    assert repr(Own(1)) == "own"
    assert Own(1) == Own(2)
    assert hash(Own(1)) == hash(Own(1))

    @record(eq=False)
    class Identity:
        a: list

    assert Identity([]) != Identity([])
    assert len({Identity([]), Identity([])}) == 2


def test_without_fields():
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())
    assert repr(Empty()) == "Empty()"


def test_fields_by_name_are_those_of_asdict():
    class Plain(NamedTuple):
        a: int

    @record
    class Inner:
        a: float = 0.5

    @record
    class Outer:
        a: int
        b: object = None

    for value in (None, True, 3, "x", Inner(), [Inner()], (Inner(), 2), {"k": Inner()}, Plain(1)):
        assert fields_by_name(Outer(1, value)) == dataclasses.asdict(Outer(1, value))
    shown = [1]
    assert fields_by_name(Outer(1, shown))["b"] is not shown


def test_other_dataclasses_do_not_mix_with_it():
    with pytest.raises(TypeError, match="frozen"):

        @dataclass(frozen=True)
        class Derived(Slotted):
            c: int = 0

    @dataclass(frozen=True)
    class Standard:
        c: int = 0

    with pytest.raises(TypeError, match="frozen"):

        @record
        class Other(Standard):
            d: int = 0
