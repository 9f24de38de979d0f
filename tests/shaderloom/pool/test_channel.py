"""Messages with arrays between two ends of a connection, in memory that both share and beside it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shaderloom.pool.channel import Channel, Received
from shaderloom.pool.shared_memory import SharedMemory, shared_memories

ARRAYS = [
    np.arange(9001, dtype=np.uint8)[1:].repeat(3),
    np.random.default_rng(0).standard_normal((3, 70_001)),
    np.arange(12, dtype=np.float32),
    np.zeros((0, 5), np.float32),
    np.asfortranarray(np.arange(40_000, dtype=np.int64).reshape(200, 200)),
    np.arange(50_000, dtype=np.complex64)[::2],
    np.array(["one", "two"], object),
]


def pair(memories: Sequence[SharedMemory]) -> tuple[Channel, Channel]:
    ours, theirs = multiprocessing.Pipe()
    return Channel(ours, memories), Channel(theirs, memories, copies=True)


def passed(sender: Channel, receiver: Channel, message: Any, *place: int) -> Received:
    """Send in a thread, as a connection holds little."""
    thread = threading.Thread(target=sender.send, args=(message, *place))
    thread.start()
    received = receiver.receive()
    thread.join()
    return received


@pytest.mark.parametrize("memories", [shared_memories(2), []], ids=["shared", "apart"])
def test_arrays_arrive_as_they_were(memories):
    worker, pool = pair(memories)
    for sender, receiver in ((pool, worker), (worker, pool)):
        for number in range(2):  # the second time in memory that has its size
            received = passed(sender, receiver, ("arrays", ARRAYS), 1, 7)
            assert received.slot == 1
            for array, expected in zip(received.message[1], ARRAYS, strict=True):
                assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
                np.testing.assert_array_equal(array, expected, err_msg=str(number))


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files without a name")
def test_large_arrays_of_one_shape_are_neighbours_in_shared_memory():
    memories = shared_memories(1)
    worker, pool = pair(memories)
    rows = [np.full((1, 30_001), number, np.float32) for number in range(3)]
    received = passed(pool, worker, rows, 0)
    addresses = [array.__array_interface__["data"][0] for array in received.message]
    assert np.diff(addresses).tolist() == [rows[0].nbytes] * 2
    assert all(np.shares_memory(array, memories[0].bytes(1)) for array in received.message)
    assert not any(array.flags.writeable for array in received.message)
    assert len({id(array.base.base.obj) for array in received.message}) == 1, "the memory is asked for once"
    assert received.end == 3 * rows[0].nbytes
    back = passed(worker, pool, received.message, 0, received.end)
    assert not any(np.shares_memory(array, memories[0].bytes(1)) for array in back.message)
    np.testing.assert_array_equal(np.concatenate(received.message), np.concatenate(rows))
    np.testing.assert_array_equal(np.concatenate(back.message), np.concatenate(rows))


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files without a name")
def test_without_room_arrays_follow_the_message(monkeypatch):
    memories = shared_memories(1)
    worker, pool = pair(memories)

    def full(size: int) -> np.ndarray:
        raise OSError("no space left")

    monkeypatch.setattr(memories[0], "bytes", full)
    np.testing.assert_array_equal(passed(pool, worker, ARRAYS[1], 0).message, ARRAYS[1])


def test_what_cannot_be_pickled_is_not_sent():
    worker, pool = pair(shared_memories(1))
    with pytest.raises(TypeError):
        pool.send([ARRAYS[1], threading.Lock()], 0)
    assert passed(pool, worker, "next").message == "next"
