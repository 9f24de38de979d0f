"""``profile``: times of single kernels, the table, the trace, and what the device could reach."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx.parser
import pytest
from typer.testing import CliRunner

from shaderloom.cli import app
from shaderloom.plans.profiling import chrome_trace, summarise, summarise_stages
from shaderloom.runtime.execution.roofline import Roofline, measure_roofline
from shaderloom.runtime.execution.timing import CallTime, Profile
from shaderloom.session.session import InferenceSession

from ..inspect.test_pass_trace import block


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.onnx"
    target.write_bytes(block().SerializeToString())
    return target


@pytest.fixture
def profile(path, device, cache_folder, monkeypatch):
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)

    def run(*arguments: object, status: int = 0):
        result = CliRunner().invoke(app, ["profile", str(path), *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result

    return run


def test_table_is_sorted_and_names_onnx_nodes(profile):
    lines = profile("--repeat", 2).output.splitlines()
    rows = [line.split() for line in lines if line[:5].strip().isdigit()]
    times = [float(row[1]) for row in rows]
    assert len(times) >= 2
    assert times == sorted(times, reverse=True)
    assert any("Conv (main node 0)" in line for line in lines)
    assert any("Softmax (main node 4)" in line for line in lines)
    assert any("medians of 2 runs" in line for line in lines)
    assert " not shown (--top)" in profile("--top", 1).output


def test_json_and_trace_agree(profile, tmp_path):
    facts = json.loads(profile("--json", "--trace", tmp_path / "trace.json").stdout)
    assert facts["ns"] == sum(call["ns"] for call in facts["calls"]) > 0
    assert sum(call["share"] for call in facts["calls"]) == pytest.approx(1)
    convolution = next(call for call in facts["calls"] if "Conv (main node 0)" in call["origins"])
    assert convolution["flops"] == 2 * 8 * 8 * 8 * 4 * 9
    trace = json.loads((tmp_path / "trace.json").read_text())
    check_trace(trace)
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    by_call = {call["call"]: call for call in facts["calls"]}
    assert [event["args"]["call"] for event in slices] == sorted(by_call)
    for event in slices:
        call = by_call[event["args"]["call"]]
        assert event["dur"] * 1e3 == pytest.approx(call["ns"])
        assert event["args"]["ONNX nodes"] == call["origins"]


def check_trace(trace: dict) -> None:
    """What the trace event format asks for: complete events with microseconds that do not overlap on a thread."""
    assert trace["displayTimeUnit"] in ("ms", "ns")
    names = {event["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert names == {"process_name", "thread_name"}
    end = 0.0
    for event in trace["traceEvents"]:
        assert {"name", "ph", "pid", "tid"} <= event.keys()
        if event["ph"] == "X":
            assert event["ts"] >= end - 1e-6 and event["dur"] >= 0
            end = event["ts"] + event["dur"]


def test_trace_cannot_be_written(profile, tmp_path):
    assert "cannot write" in profile("--trace", tmp_path / "none" / "trace.json", status=1).stderr


def test_medians_over_runs(path, device):
    feeds = {"x": np.zeros((1, 4, 8, 8), np.float32)}
    with InferenceSession(path, device=device, cache=False) as session:
        plan = session.plan_for(feeds)
    runs = [
        Profile("wall", tuple(CallTime(call.kernel[:12], call.label, time, call) for call in plan.calls))
        for time in (900, 100, 200)
    ]
    result = summarise(plan, runs, {}, Roofline(1e12, 1e12, "wall"))
    assert [call.nanoseconds for call in result.calls] == [200] * len(plan.calls)
    first = result.calls[0]
    assert first.roofline == pytest.approx(max(first.flops, first.bytes) / 200e3)
    assert summarise(plan, runs, {}, Roofline(1e9, 1e9, "wall")).calls[0].roofline is None  # more than all of it
    check_trace(chrome_trace(result, "device", "model"))


def test_wall_time_where_there_are_no_timestamps(path, web_device):
    feeds = {"x": np.zeros((1, 4, 8, 8), np.float32)}
    with InferenceSession(path, device=web_device, cache=False) as session:
        profile = session.profile(feeds)
        plan = session.plan_for(feeds)
    assert profile.method == "wall"
    assert [call.call for call in profile.calls] == plan.calls


def test_roofline_is_finite(each_device):
    roofline = measure_roofline(each_device)
    assert roofline.bytes_per_second > 1e6
    assert roofline.flops_per_second > 1e6


STAGED = """<ir_version: 8, opset_import: ["" : 18]> g (float[9] x, int64 n) => (int64[a, m] y, float[9] z) {
    y = NonZero(x)
    z = Loop (n, , x) <body = b (int64 i, bool c, float[9] s) => (bool d, float[9] t) {
        d = Identity(c)  e = Sin(s)  t = Mul(e, s) }> }"""


GROWING = """<ir_version: 8, opset_import: ["" : 18]> g (float[9] x, int64 n) => (float[m] y) {
    y = Loop (n, , x) <body = b (int64 i, bool c, float[s] v) => (bool d, float[t] w) {
        d = Identity(c)  e = Exp(v)  w = Concat<axis = 0>(e, x) }> }"""


def test_work_of_a_plan_that_serves_several_sizes(device):
    """The operations of each step are those of its size: 9 more elements in every one, whatever plan ran."""
    with InferenceSession(onnx.parser.parse_model(GROWING), device=device, cache=False) as session:
        feeds = {"x": np.zeros(9, np.float32), "n": np.array(6)}
        assert len(session.profile(feeds).calls) == 6
        runs = [session.profile_stages(feeds)]
        result = summarise_stages(runs, Roofline(1e9, 1e9, "wall"))
        with InferenceSession(onnx.parser.parse_model(GROWING), device=device, cache=False, dynamic="off") as plain:
            expected = summarise_stages([plain.profile_stages(feeds)], Roofline(1e9, 1e9, "wall"))
    assert [call.iterations for call in result.calls] == [1, 1, 4]
    assert [call.iterations for call in expected.calls] == [1] * 6
    assert sum(call.bytes for call in result.calls) == sum(call.bytes for call in expected.calls)
    operations = sum(call.flops for call in expected.calls)  # of whole threads, so not quite the same
    assert sum(call.flops for call in result.calls) == pytest.approx(operations, rel=0.1)
    assert all(call.roofline for call in result.calls)


def test_calls_of_all_stages(device, cache_folder, tmp_path, monkeypatch):
    path = tmp_path / "staged.onnx"
    onnx.save(onnx.parser.parse_model(STAGED), path)
    x = np.arange(9, dtype=np.float32) % 3
    with InferenceSession(path, device=device) as session:
        feeds = {"x": x, "n": np.array(4)}
        runs = [session.profile_stages(feeds) for _ in range(2)]
        result = summarise_stages(runs)
        assert len(session.profile(feeds).calls) == sum(len(profile.calls) for _, profile in runs[0])
        np.testing.assert_array_equal(session.run(["y"], feeds)[0], np.stack(np.nonzero(x)))
    assert {call.stage for call in result.calls} >= {1, 2}
    body = [call for call in result.calls if call.iterations == 4]
    assert body and any("Sin" in origin for call in body for origin in call.origins)
    assert sum(call.share for call in result.calls) == pytest.approx(1.0)
    np.save(tmp_path / "n.npy", np.array(4))
    monkeypatch.chdir(tmp_path)
    arguments = ["profile", str(path), "--input", "n=n.npy", "--repeat", "2"]
    table = CliRunner().invoke(app, arguments)
    assert table.exit_code == 0, table.output
    assert "stage 1: " in table.output and "(4 times)" in table.output
    facts = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert all(call["stage"] >= 1 for call in facts["calls"])
