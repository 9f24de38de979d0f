"""Attention that reads the valid rows of a cache and no other: all others hold NaN, whatever the kernel's form.

Covers: compiler/kernels/attention, compiler/kernels/attention_update, compiler/passes/attention.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from shaderloom.compiler.tuning import attention_tiles
from shaderloom.compiler.tuning.attention_tiles import BlockAttention, StreamAttention
from shaderloom.runtime.plan.device_profile import WEB

from ...support.effort import slow
from ...support.golden import check_golden
from ...support.kernels import make_model
from ...support.running import compile_for, run_plan
from ...support.watching import count_outside

SIZE = 16


def cached_attention(
    lengths: tuple[int, ...],
    queries: int,
    capacity: int,
    *,
    dtype: Any = np.float32,
    shared: int = 2,
    **attributes: Any,
) -> tuple[Any, dict[str, np.ndarray]]:
    """GroupQueryAttention of four heads with ``queries`` new tokens at the end of sequences of ``lengths``."""
    draw, batch = np.random.default_rng(queries).standard_normal, len(lengths)
    feeds: dict[str, np.ndarray] = {
        name: draw((batch, queries, heads * SIZE)).astype(dtype)
        for name, heads in (("q", 4), ("k", shared), ("v", shared))
    }
    for name in ("past_k", "past_v"):
        feeds[name] = draw((batch, shared, capacity, SIZE)).astype(dtype)
        for row, length in enumerate(lengths):
            feeds[name][row, :, length - queries :] = np.nan
    feeds["lengths"] = np.array(lengths, np.int32) - 1
    operands = ["q", "k", "v", "past_k", "past_v", "lengths", "total"]
    attributes = {"num_heads": 4, "kv_num_heads": shared, **attributes}
    results = ["y", "new_k", "new_v"]
    node = helper.make_node("GroupQueryAttention", operands, results, domain="com.microsoft", **attributes)
    model = make_model([node], feeds, results, constants={"total": np.array(max(lengths), np.int32)})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model, feeds


def expected(feeds: dict[str, np.ndarray], shared: int, window: int = -1) -> np.ndarray:
    """Softmax of the valid keys up to each query, in float64."""
    query, key, value = (feeds[name].astype(np.float64) for name in "qkv")
    batch, queries, _ = query.shape
    result = np.zeros(query.shape)
    for row in range(batch):
        length = int(feeds["lengths"][row]) + 1
        for head in range(4):
            own, columns = head * shared // 4, slice(head * SIZE, (head + 1) * SIZE)
            part = slice(own * SIZE, (own + 1) * SIZE)
            keys, values = (
                np.concatenate([feeds[past][row, own, : length - queries].astype(np.float64), new[row, :, part]])
                for past, new in (("past_k", key), ("past_v", value))
            )
            for index in range(queries):
                last = length - queries + index + 1
                first = max(last - window, 0) if window > 0 else 0
                scores = keys[first:last] @ query[row, index, columns] / np.sqrt(SIZE)
                weights = np.exp(scores - scores.max())
                result[row, index, columns] = weights @ values[first:last] / weights.sum()
    return result


#: The kind of device, queries, and a window; quick and slow to compile
QUICK = [("cpu", 1, -1), ("cpu", 1, 5), ("discrete", 20, 5)]
SLOW = [("discrete", 1, -1), ("discrete", 1, 5), ("discrete", 3, -1), ("discrete", 3, 5), ("discrete", 20, -1)]


@pytest.mark.parametrize(
    ("kind", "queries", "window"), [*QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]
)
def test_no_row_beyond_the_valid_ones_is_read(each_device, kind: str, queries: int, window: int):
    """Sequences of different lengths, queries that share a workgroup, windows."""
    model, feeds = cached_attention((41, 27), queries, 70, local_window_size=window)
    plan = compile_for(model, feeds, replace(each_device.profile, kind=kind))
    found = run_plan(each_device, plan, model, feeds)
    np.testing.assert_allclose(found[0], expected(feeds, 2, window), atol=2e-5)
    assert not any("AttendedKeys" in call.label for call in plan.calls)
    assert [state.output for state in plan.states] == ["new_k", "new_v"]
    for name, present in zip(("past_k", "past_v"), found[1:]):
        for row, length in enumerate((41, 27)):
            np.testing.assert_array_equal(present[row, :, : length - queries], feeds[name][row, :, : length - queries])
            new = feeds[name.removeprefix("past_")][row].reshape(queries, 2, SIZE).swapaxes(0, 1)
            np.testing.assert_array_equal(present[row, :, length - queries : length], new)
            assert np.isnan(present[row, :, length:]).all()
    appends = [call for call in plan.calls if "AppendKeys" in call.label]
    assert (kind == "discrete" and queries <= 4) == ("SoftmaxProduct" in appends[0].label) and len(appends) == 1


@pytest.mark.slow
@pytest.mark.parametrize("shared", [1, 2, 4])
@pytest.mark.parametrize("queries", [1, 4])
def test_parts_are_parts_of_the_valid_rows(device, shared: int, queries: int):
    """A long cache is split among workgroups by what is valid in a run; few rows leave some of them nothing."""
    for lengths in ((3000, 5), (6, 4)):
        model, feeds = cached_attention(lengths, queries, 12_000, shared=shared)
        plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
        assert max(call.grid[2] for call in plan.calls) > 1
        found = run_plan(device, plan, model, feeds)[0]
        np.testing.assert_allclose(found, expected(feeds, shared), atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("queries", [1, 4, 9])
def test_halves(device, queries: int):
    model, feeds = cached_attention((30, 22), queries, 40, dtype=np.float16)
    plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
    np.testing.assert_allclose(run_plan(device, plan, model, feeds)[0], expected(feeds, 2), atol=3e-3)


@pytest.mark.parametrize("window", [-1, 5])
def test_a_prompt_in_a_cache_on_software_drivers(each_device, window: int):
    """Scores of the capacity are stored nowhere where most of it is spare."""
    model, feeds = cached_attention((19, 12), 12, 90, local_window_size=window)
    plan = compile_for(model, feeds, replace(each_device.profile, kind="cpu"))
    assert "attention_row" in {kernel.template for kernel in plan.kernels}
    np.testing.assert_allclose(run_plan(each_device, plan, model, feeds)[0], expected(feeds, 2, window), atol=2e-5)


def test_scores_that_cannot_be_bound_are_stored_nowhere():
    """A prompt of 512 in a cache of 8,192 has 128 MB of scores for eight heads, as much as a driver binds."""
    for queries, capacity in ((512, 8192), (4096, 8192)):
        model, feeds = cached_attention((queries,), queries, capacity)
        plan = compile_for(model, feeds, replace(WEB, kind="cpu"))
        assert max(call.bytes for call in plan.calls if isinstance(call.bytes, int)) < 64 << 20


@pytest.mark.parametrize(("queries", "shared"), [(1, 2), (4, 1)])
def test_new_rows_are_written_by_the_attention_that_reads_them(device, queries: int, shared: int):
    """Halves in one kernel: first rows, full caches, and rows that would lie behind the capacity."""
    for lengths in ((queries, 30), (40, 17)):
        model, feeds = cached_attention(lengths, queries, 40, dtype=np.float16, shared=shared)
        plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
        assert len(plan.calls) == 1 and len(plan.states) == 2
        y, *caches = run_plan(device, plan, model, feeds)
        np.testing.assert_allclose(y, expected(feeds, shared), atol=3e-3)
        for letter, cache in zip("kv", caches):
            for row, length in enumerate(lengths):
                new = feeds[letter][row].reshape(queries, shared, SIZE).swapaxes(0, 1)
                np.testing.assert_array_equal(cache[row, :, length - queries : length], new)
                assert np.isnan(cache[row, :, length:]).all()


STREAMS = [
    (StreamAttention(32, 2, 4, 4, 2), (1, 2), 1, {"shared": 2}),
    (StreamAttention(64, 4, 2, 1, 4), (41, 27), 2, {"shared": 2}),
    (StreamAttention(64, 3, 4, 2, 2), (64, 33), 4, {"dtype": np.float16, "shared": 2}),
    (StreamAttention(64, 4, 4, 1), (64, 3), 1, {"shared": 1, "local_window_size": 7}),
    (StreamAttention(128, 1, 4, 2), (60, 59), 1, {"dtype": np.float16, "shared": 4}),
    (StreamAttention(32, 2, 4, 2, 2, ahead=True), (1, 2), 1, {"shared": 2}),
    (StreamAttention(64, 4, 2, 1, 4, ahead=True), (41, 27), 4, {"dtype": np.float16, "shared": 1}),
    (StreamAttention(8, 1, 4, 2, 2, ahead=True), (64, 3), 3, {"shared": 4, "local_window_size": 7}),
]


@pytest.mark.parametrize(("tile", "lengths", "queries", "options"), [*STREAMS[:2], *slow(STREAMS[2:])])
@pytest.mark.parametrize("capacity", [64, pytest.param(9000, marks=pytest.mark.slow)])
def test_teams_that_exchange_sums(device, monkeypatch, capacity: int, tile, lengths, queries: int, options):
    """Rows that share keys, ranges, new rows, and parts of which some have no key."""
    monkeypatch.setattr(attention_tiles, "attention_tiles", lambda target, problem: [tile])
    model, feeds = cached_attention(lengths, queries, capacity, **options)
    plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
    assert plan.kernels[0].template == "attention_stream" and plan.kernels[0].features == ("subgroup",)
    y, *caches = run_plan(device, plan, model, feeds)
    atol = 3e-3 if "dtype" in options else 2e-5
    np.testing.assert_allclose(y, expected(feeds, options["shared"], options.get("local_window_size", -1)), atol=atol)
    for cache in caches:
        for row, length in enumerate(lengths):
            assert np.isfinite(cache[row, :, :length]).all() and np.isnan(cache[row, :, length:]).all()


BLOCKS = [
    (BlockAttention(8, 4, 2), (41, 27), 20, {"shared": 2}),
    (BlockAttention(4, 2, 4, packed=True), (64, 33), 33, {"dtype": np.float16, "shared": 1}),
    (BlockAttention(1, 4, 8, packed=True), (60, 19), 17, {"dtype": np.float16, "shared": 4, "local_window_size": 7}),
    (BlockAttention(3, 4, 2), (13,), 13, {"shared": 4, "local_window_size": 5}),
]


@pytest.mark.parametrize(("tile", "lengths", "queries", "options"), BLOCKS)
def test_blocks_of_queries_that_exchange_scores(device, monkeypatch, tile, lengths, queries: int, options):
    """Prompts in caches with spare rows, of which none is read: not whole blocks, windows, tiles with few keys."""
    monkeypatch.setattr(attention_tiles, "attention_tiles", lambda target, problem: [tile])
    model, feeds = cached_attention(lengths, queries, 70, **options)
    plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
    kernel = next(kernel for kernel in plan.kernels if kernel.template == "attention_block")
    assert ("array<vec2<u32>" in kernel.wgsl.partition("var<workgroup> tile")[2]) == tile.packed
    y = run_plan(device, plan, model, feeds)[0]
    atol = 3e-3 if "dtype" in options else 2e-5
    np.testing.assert_allclose(y, expected(feeds, options["shared"], options.get("local_window_size", -1)), atol=atol)


def test_prompts_on_a_device_with_known_subgroups():
    """Many queries in blocks, with halves in workgroup memory as they are."""
    profile = replace(WEB, kind="discrete", adapter="NVIDIA", driver="NVIDIA", features=WEB.features | {"subgroup"})
    kernels = {}
    for queries in (128, 2048):
        model, feeds = cached_attention((queries,), queries, queries, dtype=np.float16)
        kernel = next(each for each in compile_for(model, feeds, profile).kernels if "attention" in each.template)
        kernels[kernel.template] = kernel
    assert list(kernels) == ["attention_tile", "attention_block"], "few blocks would leave the device idle"
    assert dict(kernel.config)["packed"]


def test_golden_of_blocks_that_exchange_scores(monkeypatch):
    """One row a thread: software drivers write out the loops of whole blocks for minutes."""
    monkeypatch.setattr(attention_tiles, "attention_tiles", lambda target, problem: [BLOCKS[2][0]])
    profile = replace(WEB, kind="discrete", features=WEB.features | {"subgroup"}, subgroup_size=32)
    model, feeds = cached_attention((40,), 33, 70, dtype=np.float16)
    kernel = next(each for each in compile_for(model, feeds, profile).kernels if "attention" in each.template)
    assert kernel.template == "attention_block"
    check_golden("wgsl/attention_block.wgsl", kernel.wgsl)


def test_golden_of_teams_that_exchange_sums():
    """Long caches on a device whose subgroups are known."""
    profile = replace(WEB, kind="discrete", adapter="NVIDIA", driver="NVIDIA", features=WEB.features | {"subgroup"})
    model, feeds = cached_attention((70_000,), 1, 70_000, dtype=np.float16, shared=1)
    plan = compile_for(model, feeds, profile)
    check_golden("wgsl/attention_stream.wgsl", plan.kernels[0].wgsl)


@pytest.mark.parametrize(("lengths", "queries"), [((1, 5), 1), ((4, 9), 4)])
def test_no_access_is_outside_a_cache_that_is_written(device, lengths: tuple[int, int], queries: int):
    model, feeds = cached_attention(lengths, queries, 9, dtype=np.float16)
    plan = compile_for(model, feeds, replace(device.profile, kind="discrete"))
    assert count_outside(device, plan, model, feeds) == 0


@pytest.mark.parametrize("size", [128, 256])
def test_new_rows_leave_room_for_tiles(monkeypatch, size: int):
    """Large heads and four new rows: a smaller form, or the rows are written by a call of their own."""
    monkeypatch.setattr(sys.modules[__name__], "SIZE", size)
    model, feeds = cached_attention((600, 27), 4, 700, shared=1)
    plan = compile_for(model, feeds, replace(WEB, kind="discrete"))
    assert all(kernel.workgroup_bytes <= WEB.limit("max-compute-workgroup-storage-size") for kernel in plan.kernels)
    assert len(plan.states) == 2


def test_golden_of_an_attention_that_writes_caches():
    model, feeds = cached_attention((600, 27), 2, 1500, dtype=np.float16)
    plan = compile_for(model, feeds, replace(WEB, kind="discrete"))
    check_golden("wgsl/attention_update.wgsl", plan.kernels[0].wgsl)
