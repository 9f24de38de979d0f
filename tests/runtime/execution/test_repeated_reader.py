"""Reads of a tensor that do not wait for each other."""

from __future__ import annotations

import numpy as np
import pytest

from shaderloom import ClosedError, Tensor
from shaderloom.runtime.execution.repeated_reader import RepeatedReader
from shaderloom.runtime.memory import buffers


def test_each_read_has_what_was_there_when_it_began(each_device, monkeypatch) -> None:
    """Two in flight, one of them given up, of a tensor whose bytes end inside a word; their memory is used again."""
    made: list[str] = []
    original = buffers.OwnedBuffer.__init__

    def counted(self, device, account, size, usage, label):
        made.append(label)
        original(self, device, account, size, usage, label)

    tensor = Tensor.from_numpy(np.zeros((3, 1), np.float16), each_device)
    reader = RepeatedReader(tensor)
    monkeypatch.setattr(buffers.OwnedBuffer, "__init__", counted)
    for turn in range(1, 4):
        tensor.update(np.full((3, 1), turn, np.float16))
        one = reader.begin()
        tensor.update(np.full((3, 1), -turn, np.float16))
        other = reader.begin()
        tensor.update(np.full((3, 1), np.nan, np.float16))
        if turn == 2:
            one.discard()
            one.discard()
        else:
            np.testing.assert_array_equal(one.numpy(), np.full((3, 1), turn, np.float16))
            one.discard()
        np.testing.assert_array_equal(other.numpy(), np.full((3, 1), -turn, np.float16))
    assert made == ["staging"] * 2
    last = reader.begin()
    reader.close()
    assert np.isnan(last.numpy()).all()
    tensor.dispose()
    with pytest.raises(ClosedError):
        reader.begin()
