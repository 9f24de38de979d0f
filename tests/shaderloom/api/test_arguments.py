"""Arguments of other types than the declared ones are errors that name them.

Covers: shaderloom/api/arguments, shaderloom/api/providers, shaderloom/session/output_targets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import shaderloom
from shaderloom.api.arguments import count, entries, instance, is_number, iterable, path
from shaderloom.runtime.plan.errors import InputError

MODEL = '<ir_version: 8, opset_import: ["" : 18]> m (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }'
FEEDS = {"x": np.ones((1, 2), np.float32)}


def test_numbers_of_things():
    assert count("rows", np.int64(3), "rows") == 3 and type(count("rows", np.int64(3), "rows")) is int
    for value in (0, -1, 2.0, True, "3", None):
        with pytest.raises(InputError, match=r"rows is a number of rows, not .*at least 1"):
            count("rows", value, "rows")
    assert [is_number(each) for each in (1, 1.5, np.float32(1), True, "1", None)] == [True] * 3 + [False] * 3


def test_lists_are_no_texts():
    listed = [1]
    assert iterable(listed, "a list") is listed and entries(listed, "a list") is not listed
    assert entries((each for each in "ab"), "a list") == ["a", "b"]
    for value in ("ab", b"ab", {"a": 1}, 5, None):
        with pytest.raises(InputError, match=r"a list, not .*hint"):
            entries(value, "a list", "hint")


def test_classes_and_paths():
    assert path("folder", "a/b") == Path("a/b")
    with pytest.raises(InputError, match="folder is a path, not None"):
        path("folder", None)
    assert instance("name", "text", str) == "text"
    with pytest.raises(InputError, match="name is a str, not 5"):
        instance("name", 5, str)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("providers", value) for value in (5, "cpu", {"cpu": {}})),
        *(("provider", value) for value in ([5], [("cpu",)], [("cpu", 5)], [["cpu"]])),
        *(("provider_options", value) for value in (5, [5], {})),
        ("sess_options", 5),
    ],
)
def test_of_sessions(name: str, value: Any):
    arguments = {"providers" if name == "provider" else name: value}
    with pytest.raises(InputError, match=f"{name} is"):
        shaderloom.InferenceSession(onnx.parser.parse_model(MODEL), **{"providers": ["cpu"], **arguments})


def test_of_devices():
    with pytest.raises(InputError, match="a device is an adapter's index"):
        shaderloom.InferenceSession(onnx.parser.parse_model(MODEL), device=5.5)


def test_of_runs():
    with shaderloom.InferenceSession(onnx.parser.parse_model(MODEL), providers=["cpu"]) as session:
        for names in (5, "y", {"y": 1}):
            with pytest.raises(InputError, match="output_names is a list of names"):
                session.run(names, FEEDS)
        with pytest.raises(InputError, match="run_options is a RunOptions"):
            session.run(None, FEEDS, 5)
        with pytest.raises(InputError, match="outputs is a dict"):
            session.run(None, FEEDS, outputs=5)
        for names in (None, [], ("y",), np.array(["y"])):
            np.testing.assert_array_equal(session.run(names, FEEDS)[0], FEEDS["x"])


def test_of_generation(tmp_path):
    for folder in (None, 5):
        with pytest.raises(InputError, match="folder is a path"):
            shaderloom.Generator(folder)
