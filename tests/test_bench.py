"""The benchmark harness without a device: graphs, processes, tables."""

from __future__ import annotations

import math
import sys

import onnx
import pytest

from bench import report
from bench.compile_speed import CompileTime, exceeds_linearithmic
from bench.graphs import SHAPES
from bench.runner import Result, Worker, WorkerError


@pytest.mark.parametrize("shape", SHAPES)
def test_synthetic_graphs_are_valid_and_of_the_size_asked_for(shape: str) -> None:
    for nodes in (70, 300):
        model = SHAPES[shape](nodes)
        onnx.checker.check_model(model, full_check=True)
        assert 0.9 * nodes <= len(model.graph.node) <= nodes


TALKING = """
import sys
print('a library writes this')
print('@bench {"create_s": 0.5, "first_s": 0.25}')
sys.stdout.flush()
for line in sys.stdin:
    print('@bench {"ms": 1.5}', flush=True)
print('@bench {"peak_mb": 1.0, "facts": {}}')
"""


def start(program: str) -> Worker:
    return Worker([sys.executable, "-c", program], {})


def test_a_worker_is_asked_for_runs_and_ends() -> None:
    worker = start(TALKING)
    try:
        opened = worker.opened()
        assert opened["create_s"] == 0.5
        assert opened["start_s"] > 0
        assert worker.run() == 1.5
        assert worker.finish() == {"peak_mb": 1.0, "facts": {}}
    finally:
        worker.kill()


def test_a_worker_that_fails_gives_its_last_words() -> None:
    worker = start("raise ValueError('no such operator')")
    try:
        with pytest.raises(WorkerError, match="ValueError: no such operator"):
            worker.opened()
    finally:
        worker.kill()


def test_a_worker_that_dies_between_runs_is_an_error() -> None:
    worker = start('print(\'@bench {"create_s": 0, "first_s": 0}\', flush=True); input(); raise SystemExit(3)')
    try:
        worker.opened()
        with pytest.raises(WorkerError, match="code 3"):
            worker.run()
    finally:
        worker.kill()


def test_tables_have_a_cell_for_every_runtime_and_say_what_failed() -> None:
    measured = Result("resnet50", "onnxruntime-cpu", "lavapipe", "2026-01-01", None, 40.44, 39.0, 1234.0, 3)
    failed = Result("resnet50", "shaderloom", "lavapipe", "2026-01-01", "no such operator")
    lines = report.run_table([measured, failed]).splitlines()
    assert lines[0] == "| ms a run | onnxruntime CPU, 2 threads | Shaderloom |"
    assert lines[2] == "| resnet50 | 40.4 (39.0 to 1,234) | fails |"


def compile_time(nodes: int, seconds: float) -> CompileTime:
    return CompileTime("chain", nodes, 1, 1, seconds, seconds, seconds, dict.fromkeys(report.STAGES, 0.0))


def test_growth_beyond_n_log_n_is_told() -> None:
    linearithmic = 4 * math.log(8000) / math.log(2000)
    assert not exceeds_linearithmic(compile_time(2000, 1.0), compile_time(8000, linearithmic))
    assert exceeds_linearithmic(compile_time(2000, 1.0), compile_time(8000, 16.0))
    text = report.compile_tables([], [compile_time(2000, 1.0), compile_time(8000, 16.0)])
    assert "Faster than n log n grew: chain from 2000 to 8000 nodes." in text


def test_runtimes_are_compared_where_both_ran() -> None:
    def result(model: str, runtime: str, median: float | None) -> Result:
        return Result(model, runtime, "lavapipe", "2026-01-01", median_ms=median, least_ms=median, most_ms=median)

    text = report.comparison(
        [
            result("resnet18", "shaderloom", 2.0),
            result("resnet18", "ncnn", 8.0),
            result("resnet50", "shaderloom", 3.0),
            result("resnet50", "ncnn", 3.0),
            result("resnet50", "wonnx", None),
            result("bert_small", "ncnn", 5.0),
        ]
    )
    assert "ncnn Vulkan takes 2.00 times" in text and "of 2 models, at least 1.00 times (resnet50)" in text
    assert text.count("*") == 1
