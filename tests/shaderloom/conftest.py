"""A tiny decoder with its tokenizer, converted of a GGUF file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shaderloom.convert.gguf_decoder import convert_gguf
from shaderloom.generate.generator import Generator

from ..support.tiny_gguf import TinyGguf, write_tiny_gguf


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyGguf:
    """The file; its folder is beside it."""
    tiny = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "t.gguf", kind="Q8_0", tied=False)
    convert_gguf(tiny.path, tiny.path.parent / "folder")
    return tiny


@pytest.fixture(scope="session")
def folder(tiny: TinyGguf) -> Path:
    return tiny.path.parent / "folder"


@pytest.fixture(scope="module")
def generator(folder: Path, device: Any) -> Iterator[Generator]:
    with Generator(folder, device=device, cache=False) as opened:
        yield opened
