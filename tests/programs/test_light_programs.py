"""Four programs that install in seconds see the same on this package as on onnxruntime."""

from __future__ import annotations

import os

import pytest

from .comparing import difference
from .running import NotInstalled, Program, programs, run

LIGHT = [program for program in programs() if program.light]


@pytest.mark.slow
@pytest.mark.parametrize("program", LIGHT, ids=lambda program: program.name)
def test_a_user_sees_the_same(device, program: Program) -> None:
    try:
        result = run(program)
    except NotInstalled as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"{program.name} cannot be installed: {error}")
    assert result.fault == ""


def test_differences_are_seen() -> None:
    assert difference({"a": [1.0, "x"]}, {"a": [1.001, "x"]}) is None
    assert difference({"a": [1.0, "x"]}, {"a": [1.01, "x"]}) == "result.a[0]: 1.01 in place of 1.0"
    assert difference({"a": [1.0, "x"]}, {"a": [1.0, "y"]}) == "result.a[1]: 'y' in place of 'x'"
    assert difference([1, 2], [1]) == "result: [1] in place of [1, 2]"
    assert difference(3, 4) == "result: 4 in place of 3"
    assert len(LIGHT) == 4
