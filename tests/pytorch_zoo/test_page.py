"""What counts as right in the zoo, and that its page is what the stored results give."""

from __future__ import annotations

import pytest

from . import page
from .names import MODELS

RIGHT = {"difference": 1e-6, "graphs": 1, "on_device": 1, "reason": ""}
ROW = {
    "model": MODELS[0],
    "session": RIGHT,
    "compiled": RIGHT,
    "times": {"eager": 1.0, "inductor": 0.5, "session": 2.0},
}
FACTS = {"device": "a device", "libraries": "torch 1", "date": "2026-01-01", "load": 1.0, "cores": 2}


@pytest.mark.parametrize(
    ("part", "value", "right"),
    [
        ("session", {**RIGHT, "difference": 2e-4}, False),
        ("session", {**RIGHT, "difference": float("nan")}, False),
        ("session", "support: PyTorch cannot export the module to ONNX: a reason", True),
        ("session", "internal: the device was lost", False),
        ("compiled", {**RIGHT, "difference": 2e-4}, False),
        ("compiled", {**RIGHT, "graphs": 2, "reason": "random numbers"}, True),
        ("compiled", "support: PyTorch cannot export the module to ONNX: a reason", False),
    ],
)
def test_a_row_is_right(part, value, right):
    assert page.is_right(ROW)
    assert page.is_right({**ROW, part: value}) is right


def test_a_section_says_how_many_are_right_and_why_others_are_not():
    rows = [
        {**ROW, **FACTS},
        {**ROW, **FACTS, "compiled": {**RIGHT, "graphs": 3, "difference": 0.5, "reason": "float64"}, "times": "lost"},
    ]
    text = page.section(rows)
    assert "**1 of 2 models are right, 1 of 2 run wholly on the device.**" in text
    assert "| 1.0e-06 | 5.0e-01 (1) | 1 of 3 |" in text
    assert "\n1. float64\n" in text
    assert "| 1 of 1 | 1 | 0.5 | 2 |" in text
    assert MODELS[1] in text.partition("Not run: ")[2]


def test_a_section_has_the_libraries_of_each_run():
    text = page.section([{**ROW, **FACTS}, {**ROW, **FACTS, "libraries": "torch 2", "load": 2.5}])
    assert "\ntorch 1; 2026-01-01, with a load of 1 on 2 cores (1 of 2 models).\ntorch 2; 2026-01-01" in text


def test_the_page_is_what_the_results_give():
    assert page.PAGE.read_text(encoding="utf-8") == page.text()
