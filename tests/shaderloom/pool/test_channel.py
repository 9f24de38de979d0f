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


def passed(sender: Channel, receiver: Channel, message: Any, *place: Any) -> Received:
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


def stack(shape: tuple[int, ...], dtype: str, count: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [(draw.standard_normal(shape) * 9).astype(dtype) for _ in range(count)]


STACKS = [
    stack((1, 70_001), "f4", 3),
    stack((1, 7), "i1", 5),
    [array.T for array in stack((50, 40), ">f8", 4)],
    stack((0, 5), "f4", 3),
    stack((), "f2", 9000),
    stack((2, 9000), "U3", 1),
]


@pytest.mark.parametrize("memories", [shared_memories(2), []], ids=["shared", "apart"])
def test_stacks_arrive_as_one_array_each(memories):
    worker, pool = pair(memories)
    for sender, receiver in ((pool, worker), (worker, pool)):
        for _ in range(2):
            received = passed(sender, receiver, ("beside", ARRAYS), 1, 7, STACKS)
            for array, arrays in zip(received.stacks, STACKS, strict=True):
                assert array.dtype == arrays[0].dtype
                np.testing.assert_array_equal(array, np.stack(arrays))
            for array, expected in zip(received.message[1], ARRAYS, strict=True):
                np.testing.assert_array_equal(array, expected)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files without a name")
def test_large_stacks_are_views_of_shared_memory():
    memories = shared_memories(1)
    worker, pool = pair(memories)
    received = passed(pool, worker, ARRAYS[1], 0, 0, STACKS[:2])
    large, small = received.stacks
    for array in (large, received.message):
        assert np.shares_memory(array, memories[0].bytes(1)) and not array.flags.writeable
    assert large.flags.c_contiguous
    assert not np.shares_memory(small, memories[0].bytes(1))
    assert received.end >= large.nbytes + received.message.nbytes
    back = passed(worker, pool, received.message, 0, received.end, [list(large), [large]])
    assert not np.shares_memory(back.message, memories[0].bytes(1))
    assert all(np.shares_memory(stack, memories[0].bytes(1)) for stack in back.stacks)
    for array, expected in ((back.message, ARRAYS[1]), (back.stacks[0], large), (back.stacks[1][0], large)):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files without a name")
def test_without_room_arrays_follow_the_message(monkeypatch):
    memories = shared_memories(1)
    worker, pool = pair(memories)

    def full(size: int) -> np.ndarray:
        raise OSError("no space left")

    monkeypatch.setattr(memories[0], "bytes", full)
    received = passed(pool, worker, ARRAYS[1], 0, 0, STACKS[:1])
    np.testing.assert_array_equal(received.message, ARRAYS[1])
    np.testing.assert_array_equal(received.stacks[0], np.stack(STACKS[0]))


def test_what_cannot_be_pickled_is_not_sent():
    worker, pool = pair(shared_memories(1))
    with pytest.raises(TypeError):
        pool.send([ARRAYS[1], threading.Lock()], 0)
    assert passed(pool, worker, "next").message == "next"
