"""The page of programs has a row for each that was run, and is what the stored results give."""

from __future__ import annotations

from .page import PAGE, stored, write
from .running import Result, programs


def test_a_row_has_what_was_seen_and_when():
    program, other, *_ = programs()
    results = {
        program.name: Result(program.name, "", (1.0, 0.5), (2.0, 1.25), 3, "a device", 2, "2026-01-01", 4.4),
        other.name: Result(other.name, "a | b", device="a device", cores=2, date="2026-01-02"),
    }
    text = write([program, other], results)
    assert "**1 of 2 programs that ran show their user the same.**" in text and "On a device with 2 cores" in text
    assert "| the same | 3 | 1.0 / 0.50 | 2.0 / 1.25 | 2026-01-01 | 4 |\n" in text
    assert "| a \\| b |  | 0.0 / 0.00 | 0.0 / 0.00 | 2026-01-02 |  |\n" in text


def test_the_page_is_what_the_results_give():
    assert PAGE.read_text(encoding="utf-8") == write(programs(), stored())
