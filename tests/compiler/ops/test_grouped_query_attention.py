"""GroupQueryAttention of batches whose rows have different lengths, with sizes that only a run knows.

Covers: compiler/ops/microsoft/grouped_query_attention.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from shaderloom import InferenceSession

from ...support.kernels import make_model
from ...support.running import compile_for, run_plan

HEADS, SHARED, SIZE, CAPACITY = 4, 2, 16, 16


def padded_batch(*, queries: int | str, positions: bool) -> bytes:
    """A model of two rows: their lengths come from a mask, the total length is the length of the mask."""
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "one"], ["less"]),
        helper.make_node("Cast", ["less"], ["lengths"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "index"], ["count"], axis=0),
        helper.make_node("Cast", ["count"], ["total"], to=TensorProto.INT32),
    ]
    operands = ["q", "k", "v", "past_k", "past_v", "lengths", "total"]
    if positions:
        operands += ["cosines", "sines", "positions"]
    attributes = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": int(positions)}
    results = ["y", "present_k", "present_v"]
    nodes.append(helper.make_node("GroupQueryAttention", operands, results, domain="com.microsoft", **attributes))
    cache = [2, SHARED, CAPACITY, SIZE]
    info = helper.make_tensor_value_info
    inputs = [
        info("mask", TensorProto.INT64, [2, "total"]),
        *(info(name, 1, [2, queries, heads * SIZE]) for name, heads in (("q", HEADS), ("k", SHARED), ("v", SHARED))),
        *(info(name, 1, cache) for name in ("past_k", "past_v")),
    ]
    weights = [
        helper.make_tensor("one", TensorProto.INT64, [1], [1]),
        helper.make_tensor("index", TensorProto.INT64, [], [1]),
    ]
    if positions:
        inputs.append(info("positions", TensorProto.INT64, [2, queries]))
        angles = np.outer(np.arange(CAPACITY), 0.3 ** np.arange(SIZE // 2)).astype(np.float32)
        weights += [
            helper.make_tensor(name, 1, angles.shape, values.ravel())
            for name, values in (("cosines", np.cos(angles)), ("sines", np.sin(angles)))
        ]
    outputs = [info("y", 1, [2, queries, HEADS * SIZE]), *(info(f"present_{name}", 1, cache) for name in "kv")]
    graph = helper.make_graph(nodes, "padded", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString()


def feeds_of(lengths: tuple[int, int], queries: int, *, positions: bool) -> dict[str, Any]:
    """Rows of ``lengths`` valid tokens of which ``queries`` are new: a right-padded prompt where all of them are."""
    draw = np.random.default_rng(queries).standard_normal
    total = max(lengths)
    feeds: dict[str, Any] = {"mask": (np.arange(total) < np.array(lengths)[:, None]).astype(np.int64)}
    for name, heads in (("q", HEADS), ("k", SHARED), ("v", SHARED)):
        feeds[name] = draw((2, queries, heads * SIZE)).astype(np.float32)
    for name in ("past_k", "past_v"):
        feeds[name] = draw((2, SHARED, CAPACITY, SIZE)).astype(np.float32)
    if positions:
        first = np.zeros(2, np.int64) if queries == total else np.array(lengths) - queries
        feeds["positions"] = first[:, None] + np.arange(queries)
    return feeds


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize(
    "dynamic", [None, {"total": (1, CAPACITY)}, {"total": (1, CAPACITY), "s": (1, 8)}], ids=["static", "total", "both"]
)
@pytest.mark.parametrize(
    ("lengths", "queries"),
    [((7, 4), 7), ((7, 7), 7), ((9, 6), 1), ((1, 1), 1)],
    ids=["padded", "full", "token", "first"],
)
def test_rows_of_different_lengths(
    device, dynamic: dict[str, tuple[int, int]] | None, lengths: tuple[int, int], queries: int, positions: bool
) -> None:
    """Whether new tokens are a whole prompt depends on sizes of the run where they are declared."""
    model = padded_batch(queries="s" if dynamic is None or "s" in dynamic else queries, positions=positions)
    feeds = feeds_of(lengths, queries, positions=positions)
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    expected = reference.run(None, feeds)
    with InferenceSession(model, device=device, cache=False, dynamic=dynamic) as session:
        found = session.run(None, feeds)
    for row, length in enumerate(lengths):
        valid = min(length, queries)  # what stands behind a row's own tokens is padding
        np.testing.assert_allclose(found[0][row, :valid], expected[0][row, :valid], atol=2e-5)
        for ours, theirs in zip(found[1:], expected[1:]):
            np.testing.assert_allclose(ours[row, :, :length], theirs[row, :, :length], atol=2e-5)


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize(
    "dynamic", [None, {"total": (1, CAPACITY)}, {"total": (1, CAPACITY), "s": (1, 4)}], ids=["static", "total", "both"]
)
def test_few_tokens_of_which_the_attention_writes_the_rows(
    device, dynamic: dict[str, tuple[int, int]] | None, positions: bool
) -> None:
    """On a GPU one kernel turns the new rows, writes and attends them, however many a run has."""
    profile = replace(device.profile, kind="discrete")
    for lengths, queries in (((9, 4), 1), ((16, 3), 1), ((4, 4), 4), ((2, 1), 1)):
        sequence = "s" if dynamic is not None and "s" in dynamic else queries
        model = onnx.load_from_string(padded_batch(queries=sequence, positions=positions))
        feeds = feeds_of(lengths, queries, positions=positions)
        plan = compile_for(model, feeds, profile, dynamic=dynamic)
        assert any("AppendKeys" in call.label and "SoftmaxProduct" in call.label for call in plan.calls)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        found, expected = run_plan(device, plan, model, feeds), session.run(None, feeds)
        np.testing.assert_allclose(found[0], expected[0], atol=2e-5)
        for ours, theirs in zip(found[1:], expected[1:]):
            for row, length in enumerate(lengths):
                np.testing.assert_allclose(ours[row, :, :length], theirs[row, :, :length], atol=2e-5)


@pytest.mark.parametrize("past", [0, 24])
def test_caches_of_halves_are_written_once(device, past: int):
    """Keys with rotary positions and values go to the caches as halves, in one kernel, and attention reads those."""
    shared, size, length = 2, 16, past + (1 if past else 6)
    queries = length - past
    angles = np.outer(np.arange(64), 0.3 ** np.arange(size // 2)).astype(np.float16)
    rng = np.random.default_rng(past)
    feeds = {
        "qkv": rng.standard_normal((1, queries, (4 + 2 * shared) * size)).astype(np.float16),
        "past_k": rng.standard_normal((1, shared, past, size)).astype(np.float16),
        "past_v": rng.standard_normal((1, shared, past, size)).astype(np.float16),
    }
    constants = {
        "lengths": np.array([length - 1], np.int32),
        "total": np.array(length, np.int32),
        "cosines": np.cos(angles),
        "sines": np.sin(angles),
    }
    operands = ["qkv", "", "", "past_k", "past_v", "lengths", "total", "cosines", "sines"]
    attributes = {"num_heads": 4, "kv_num_heads": shared, "do_rotary": 1}
    results = ["y", "present_k", "present_v"]
    node = helper.make_node("GroupQueryAttention", operands, results, domain="com.microsoft", **attributes)
    model = make_model([node], feeds, results, constants=constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    plan = compile_for(model, feeds, device.profile)
    for actual, expected in zip(run_plan(device, plan, model, feeds), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2e-3, atol=2e-3)
    assert not any(call.label == "Cast" for call in plan.calls)
    assert sum("AppendKeys" in call.label for call in plan.calls) == (1 if past else 0)
