"""The decision whether a model is one plan for its shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from shaderloom.execution.one_plan import REFUSED_SHAPES, SEEN_SHAPES, OnePlanDecision
from shaderloom.runtime.plan.errors import (
    DeviceLimitError,
    InputError,
    NotKnownError,
    ShapeError,
    UnsupportedError,
)


@dataclass
class Header:
    refused: int = 0


@dataclass
class Source:
    """What the decision asks a source of plans."""

    header: Header = field(default_factory=Header)
    model: object | None = "a model"

    def as_model(self) -> Any:
        return self.model


def refuses(error: Exception, asked: list[object]) -> Any:
    def get(shapes: object, feeds: object) -> str:
        asked.append(shapes)
        raise error

    return get


SHAPES = {"x": (2, 3)}


def decide(source: Source) -> OnePlanDecision:
    """The decision of an engine that runs a model in steps where there is one."""
    return OnePlanDecision(source, has_steps=source.model is not None)


def test_one_plan_is_what_the_compiler_makes():
    decision = decide(Source())
    assert decision.attempt(lambda shapes, feeds: (shapes, feeds), SHAPES, {"x": 1}, has_cpu=False) == (
        SHAPES,
        {"x": 1},
    )


@pytest.mark.parametrize("error", [NotKnownError("later"), UnsupportedError("no such operator")])
def test_a_refusal_is_remembered_for_its_shapes(error):
    decision, asked = decide(Source()), []
    for _ in range(2):
        assert decision.attempt(refuses(error, asked), SHAPES, has_cpu=False) is None
    assert asked == [SHAPES], "the second time nothing is compiled"
    assert decision.attempt(lambda shapes, feeds: "plan", {"x": (4, 3)}, has_cpu=False) == "plan"


@pytest.mark.parametrize("error", [ShapeError("they do not fit"), DeviceLimitError("too large")])
def test_only_a_cpu_helps_where_the_device_cannot(error):
    decision = decide(Source())
    with pytest.raises(type(error)):
        decision.attempt(refuses(error, []), SHAPES, has_cpu=False)
    assert decision.attempt(refuses(error, []), SHAPES, has_cpu=True) is None


def test_a_bundle_has_no_steps():
    with pytest.raises(UnsupportedError):
        decide(Source(model=None)).attempt(refuses(UnsupportedError("no"), []), SHAPES, has_cpu=True)


def test_shapes_of_a_bundle_say_nothing_of_others():
    """Each of its plans and programs is for shapes of its own."""
    decision, asked = OnePlanDecision(Source(model=None), has_steps=True), []
    for size in range(5):
        assert decision.attempt(refuses(NotKnownError("a program"), asked), {"x": (size,)}, has_cpu=False) is None
    assert len(asked) == 5


def test_other_errors_are_the_caller_s():
    with pytest.raises(InputError):
        decide(Source()).attempt(refuses(InputError("no such input"), []), SHAPES, has_cpu=True)


def test_a_model_with_refused_nodes_is_never_compiled_as_one():
    decision, asked = decide(Source(Header(refused=1))), []
    assert decision.never
    assert decision.attempt(refuses(InputError("compiled"), asked), SHAPES, has_cpu=True) is None
    assert not asked


def test_a_model_that_is_never_one_plan_is_not_compiled_for_every_shape():
    decision, asked = decide(Source()), []
    get = refuses(NotKnownError("later"), asked)
    for size in range(20):
        assert decision.attempt(get, {"x": (size,)}, has_cpu=False) is None
    assert len(asked) == REFUSED_SHAPES


def test_a_limit_of_the_device_says_nothing_of_other_shapes():
    decision, asked = decide(Source()), []
    for size in range(20):
        assert decision.attempt(refuses(DeviceLimitError("large"), asked), {"x": (size,)}, has_cpu=True) is None
    assert len(asked) == 20


def test_so_many_shapes_are_remembered():
    """Of a model that is one plan for some shapes."""
    decision, asked = decide(Source()), []
    assert decision.attempt(lambda shapes, feeds: "plan", SHAPES, has_cpu=False) == "plan"
    get = refuses(NotKnownError("later"), asked)
    for size in range(SEEN_SHAPES):
        assert decision.attempt(get, {"x": (size,)}, has_cpu=False) is None
    assert decision.attempt(get, {"x": (0,)}, has_cpu=False) is None and len(asked) == SEEN_SHAPES
    decision.attempt(get, {"x": (SEEN_SHAPES,)}, has_cpu=False)
    decision.attempt(get, {"x": (0,)}, has_cpu=False)
    assert len(asked) == SEEN_SHAPES + 2, "older ones are asked again"
