"""Damaged GGUF files are errors: none crashes, hangs or takes memory that the file does not have."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from shaderloom.convert.gguf_file import GgufFile
from shaderloom.runtime.plan.errors import ModelError

from ...support.tiny_gguf import TOKENS, shapes, write_tiny_gguf


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "t.gguf").path.read_bytes()


def opened(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with GgufFile(path) as file:
        for tensor in file.tensors.values():
            if tensor.kind in ("F32", "Q4_1"):
                file.data(tensor)


def test_a_file_is_read(tmp_path: Path, data: bytes):
    (tmp_path / "t.gguf").write_bytes(data)
    with GgufFile(tmp_path / "t.gguf") as file:
        assert file.settings["tokenizer.ggml.tokens"] == TOKENS
        assert {name: tensor.shape for name, tensor in file.tensors.items()} == shapes("llama", tied=True)


@pytest.mark.parametrize("size", [0, 3, 4, 8, 23, 24, 40, 1000, 5000, 20000])
def test_a_file_that_ends_early(tmp_path: Path, data: bytes, size: int):
    with pytest.raises(ModelError):
        opened(tmp_path / "t.gguf", data[:size])


def test_changed_bytes_are_errors_or_another_file(tmp_path: Path, data: bytes):
    rng = np.random.default_rng(0)
    header = data.index(b"output_norm.weight") + 64
    for _ in range(300):
        changed = bytearray(data)
        for place in rng.integers(0, header, rng.integers(1, 4)):
            changed[place] = rng.choice([0, 1, 8, 9, 127, 128, 255])
        try:
            opened(tmp_path / "t.gguf", bytes(changed))
        except ModelError:
            continue


def test_counts_are_checked_before_memory_is_taken(tmp_path: Path):
    """A string, an array and a list of settings that say they have terabytes."""
    start = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    key = struct.pack("<Q", 1) + b"k"
    huge = 1 << 41
    files = [
        b"GGUF" + struct.pack("<IQQ", 3, huge, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, huge),
        start + struct.pack("<Q", huge),
        start + key + struct.pack("<IQ", 8, huge),
        start + key + struct.pack("<IIQ", 9, 8, 1 << 21),
        start + key + struct.pack("<IIQ", 9, 4, huge),
        start + key + struct.pack("<IIQ", 9, 9, 2),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + key + struct.pack("<IQQIQ", 2, huge, 32, 0, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + key + struct.pack("<IQIQ", 1, 32, 0, huge),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + key + struct.pack("<IQIQ", 1, 33, 3, 0) + bytes(4096),
    ]
    for content in files:
        (tmp_path / "t.gguf").write_bytes(content)
        tracemalloc.start()
        with pytest.raises(ModelError):
            GgufFile(tmp_path / "t.gguf")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()
