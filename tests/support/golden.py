"""Golden files: text that a test pins, kept under tests/golden and written anew with SHADERLOOM_UPDATE_GOLDEN=1."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "golden"
UPDATE = "SHADERLOOM_UPDATE_GOLDEN"


def check_golden(name: str, text: str) -> None:
    """Compare ``text`` with the file ``name`` under tests/golden; a difference shows as pytest's diff of lines."""
    path = FOLDER / name
    text = text.rstrip("\n") + "\n"
    if os.environ.get(UPDATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    assert path.is_file(), f"tests/golden/{name} is missing; {UPDATE}=1 writes it"
    expected = path.read_text(encoding="utf-8")
    assert text.splitlines() == expected.splitlines(), f"tests/golden/{name} differs; {UPDATE}=1 writes it anew"
