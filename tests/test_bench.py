"""The benchmark harness without a device: graphs, processes, tables."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from bench import gpu_page, page_features, pages, report, session_report, starts
from bench.chosen import chosen
from bench.compile_speed import CompileTime, exceeds_linearithmic, steep_passes
from bench.gpu_int8_part import TOLERANCE
from bench.gpu_models import INT8_MODELS, fill, fill_float32
from bench.graphs import SHAPES
from bench.recurrent_models import GATES, recurrent
from bench.runner import Result
from bench.worker import Worker, WorkerError
from bench.workers.protocol import Job

from .support.comparison import reference, relative_error
from .support.patience import PATIENCE


@pytest.mark.parametrize("shape", SHAPES)
def test_synthetic_graphs_are_valid_and_of_the_size_asked_for(shape: str) -> None:
    for nodes in (70, 300):
        model = SHAPES[shape](nodes)
        onnx.checker.check_model(model, full_check=True)
        assert 0.9 * nodes <= len(model.graph.node) <= nodes


TALKING = """
import sys
from pathlib import Path
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


PAGE = """
import numpy as np, sys
from bench.workers.protocol import Opened, serve
parts = {"start_s": 0.75, "create_s": 0.5, "first_s": 0.125}
serve(lambda job, feeds: Opened(lambda: [feeds["x"]], time=lambda: 2.5, started=lambda: parts))
"""


def test_a_page_tells_its_own_start(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.zeros(3, np.float32))
    job = Job("", str(tmp_path / "inputs.npz"), str(tmp_path / "outputs.npz"), ["y"], "")
    worker = Worker([sys.executable, "-c", PAGE, json.dumps(dataclasses.asdict(job))], {})
    try:
        assert worker.opened() == {"start_s": 0.75, "create_s": 0.5, "first_s": 0.125, "cpu_s": None}
        assert worker.run() == 2.5
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
    return CompileTime("chain", nodes, 1, 1, seconds, seconds, seconds, dict.fromkeys(report.PARTS, 0.0))


def test_growth_beyond_n_log_n_is_told() -> None:
    linearithmic = 4 * math.log(8000) / math.log(2000)
    assert not exceeds_linearithmic(compile_time(2000, 1.0), compile_time(8000, linearithmic))
    assert exceeds_linearithmic(compile_time(2000, 1.0), compile_time(8000, 16.0))
    text = report.compile_tables([], [compile_time(2000, 1.0), compile_time(8000, 16.0)])
    assert "Faster than n log n grew: chain from 2000 to 8000 nodes." in text


def measured(model: str, runtime: str, median: float | None, ours: float | None = None, **others) -> Result:
    result = Result(model, runtime, "lavapipe", "2026-01-01", median_ms=median, least_ms=median, most_ms=median)
    return dataclasses.replace(result, ours_ms=ours, **others)


def test_runtimes_are_compared_where_both_ran_in_the_same_rounds() -> None:
    text = report.comparison(
        [
            measured("resnet18", "shaderloom", 2.5, 2.5),  # of a later run than the others
            measured("resnet18", "ncnn", 8.0, 2.0),
            measured("resnet50", "shaderloom", 3.0, 3.0),
            measured("resnet50", "ncnn", 3.0, 3.0),
            measured("resnet50", "wonnx", None, 3.0),
            measured("bert_small", "ncnn", 5.0),
        ]
    )
    assert "ncnn Vulkan takes 2.00 times" in text and "of 2 models, at least 1.00 times (resnet50)" in text
    assert text.count("*") == 1


def test_bundles_in_a_browser_are_ours_too() -> None:
    text = report.comparison(
        [measured("bert_small", "shaderloom-web", 2.0, 2.0), measured("bert_small", "onnxruntime-web", 12.0, 2.0)]
    )
    assert "onnxruntime-web WebGPU takes 6.00 times" in text and "of 1 model," in text


@pytest.mark.parametrize(("cpu", "told"), [((4.0, 1.0), True), ((4.0, 9.0), False)])
def test_where_the_cpu_is_faster_the_page_says_so(cpu: tuple[float, float], told: bool) -> None:
    results = [measured(model, "onnxruntime-cpu", time, 5.0) for model, time in zip(("resnet18", "resnet50"), cpu)]
    assert ("The CPU is the faster choice" in report.comparison(results)) is told


def test_parts_of_a_table_measured_at_different_times_are_one_table(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(report, "PAGE", tmp_path / "docs" / "benchmarks" / "models.md")
    report.save_models([measured("resnet18", "shaderloom", 2.0, 2.0), measured("resnet18", "ncnn", 8.0, 2.0)])
    report.save_models([measured("resnet18", "shaderloom", 4.0, 4.0), measured("resnet18", "wonnx", 40.0, 4.0)])
    report.save_models([measured("resnet50", "shaderloom", 5.0, 5.0)])
    report.write_page()
    text = report.PAGE.read_text()
    assert "| resnet18 | 4.00 (4.00 to 4.00) | 8.00 (8.00 to 8.00) | 40.0 (40.0 to 40.0) |" in text
    assert "| resnet50 | 5.00 (5.00 to 5.00) |  |  |" in text
    assert "ncnn Vulkan takes 4.00 times" in text and "wonnx takes 10.00 times" in text


def test_what_was_stored_without_the_time_of_ours_finds_it_by_its_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    report.save_models([measured("resnet18", "shaderloom", 2.0), measured("resnet18", "ncnn", 8.0)])
    other = dataclasses.replace(measured("resnet18", "wonnx", 9.0), date="2026-01-02")
    report.save_models([other])
    assert [result.ours_ms for result in report.load_models("lavapipe")] == [2.0, 2.0, None]


def test_the_share_of_the_compiler_in_starts() -> None:
    others = {"starts": [{"start_s": 9.0}, {"start_s": 1.0}], "facts": {"compile_ms": 20.0, "from_disk": True}}
    text = report.compile_share([measured("resnet18", "shaderloom", 1.0, cold_compile_ms=400.0, **others)])
    assert "resnet18 400 and 20 ms (5%)" in text
    assert report.compile_share([measured("resnet18", "shaderloom", 1.0, cold_compile_ms=400.0)]) == ""
    others["facts"] = {"compile_ms": 990.0, "from_disk": False}
    assert report.compile_share([measured("resnet18", "shaderloom", 1.0, cold_compile_ms=400.0, **others)]) == ""


def gpu_results(machine: str, milliseconds: float) -> gpu_page.Results:
    summary = {
        "gpu_shaderloom/device": {"median": milliseconds, "least": 0.5 * milliseconds},
        "gpu_torch/device": {"median": 2 * milliseconds, "least": milliseconds},
    }
    model = {
        "model": "decoder",
        "summary": summary,
        "facts": {"gpu_shaderloom": {"calls": 35}},
        "differences": {"gpu_shaderloom": 1e-7},
        "errors": {"gpu_onnxruntime": "no adapter"},
    }
    runtimes = {"gpu_torch": {"facts": {"version": "2.11"}}}
    start = {"start_s": 2.0, "create_s": 0.25, "first_s": 1.25, "cpu_s": 3.0, "run_ms": milliseconds}
    starts = {
        "shaderloom": [start, {**start, "start_s": 1.5}, {**start, "start_s": 1.25}],
        "onnxruntime": [{"error": "no"}],
    }
    facts = {"machine": machine, "date": "2026-01-01", "seconds": 9.0, "runtimes": runtimes}
    return {"models": {**facts, "models": [model], "starts": [{"model": "decoder", "starts": starts}]}}


def decoder_results(machine: str) -> gpu_page.Results:
    summary = {
        "decoder_shaderloom/token at 512": {"median": 1.25, "least": 1.0},
        "decoder_torch/token at 512": {"median": 1.5, "least": 1.375},
    }
    model = {
        "model": "Qwen2.5-0.5B",
        "summary": summary,
        "differences": {"decoder_shaderloom": 2e-3},
        "errors": {"decoder_onnxruntime": "no adapter"},
    }
    runtimes = {"decoder_torch": {"facts": {"version": "2.11"}}}
    return {
        "decoders": {
            "machine": machine, "date": "2026-01-02", "seconds": 3.0, "runtimes": runtimes, "models": [model],
        }
    }  # fmt: skip


def test_texts_are_shown_by_the_token() -> None:
    count = gpu_page.TEXT.count
    summary = {
        "generator_shaderloom/greedy": {"median": 1.0 * count, "least": 0.5 * count},
        "generator_onnxruntime/on the host": {"median": 4.0 * count, "least": 2.0 * count},
        "generator_onnxruntime/on the device": {"median": 8.0 * count, "least": 8.0 * count},
    }
    tokens = {"generator_shaderloom": [1, 2, 3], "generator_onnxruntime": [1, 2, 4]}
    facts = {name: {"tokens": each} for name, each in tokens.items()}
    model = {"model": "Qwen2.5-0.5B", "summary": summary, "facts": facts, "errors": {}}
    measured = {"machine": "Card A, 1", "date": "2026-01-02", "seconds": 3.0, "runtimes": {}, "models": [model]}
    row = f"- | 1.000 (0.500) | - | - | 8.000 (8.000) | 4.000 (2.000) | 1000 / 250 | 2 of {count} |"
    assert f"| Qwen2.5-0.5B | {row}" in gpu_page.section({"tokens": measured})


def test_recurrent_layers_stand_beside_the_hosts_processor() -> None:
    model = {
        "model": "LSTM",
        "summary": {
            "gpu_shaderloom/device": {"median": 2.0, "least": 1.5},
            "gpu_onnxruntime_cpu/arrays": {"median": 6.0, "least": 5.5},
        },
        "facts": {"gpu_shaderloom": {"calls": 7}},
        "differences": {"gpu_shaderloom": 1e-6},
        "errors": {},
    }
    measured = {"machine": "Card A, 1", "date": "2026-01-02", "seconds": 3.0, "runtimes": {}, "models": [model]}
    text = gpu_page.section({"recurrent": measured})
    assert "### Recurrent layers" in text and "onnxruntime CPU, arrays" in text
    assert "| LSTM | - | 6.000 (5.500) | 2.000 (1.500) | - | 7 | 1.0e-06 |" in text


@pytest.mark.parametrize("operator", GATES)
def test_recurrent_models_are_valid(operator: str) -> None:
    onnx.checker.check_model(recurrent(operator), full_check=True)


@pytest.mark.slow
def test_a_sentence_encoder_and_its_weights_of_bytes(tmp_path: Path) -> None:
    model = INT8_MODELS["minilm_int8"]
    files = [fill_float32(model, tmp_path), fill(model, tmp_path)]
    onnx.checker.check_model(files[1], full_check=True)
    assert files[1].stat().st_size < 0.3 * files[0].stat().st_size
    (expected,), (result,) = (reference(file, model.feeds()) for file in files)
    assert relative_error(result, expected) < TOLERANCE


def test_the_page_of_gpus_has_a_section_for_each_card(tmp_path) -> None:
    for folder in (gpu_page.RESULTS, gpu_page.PAGE.parent):
        (tmp_path / folder).mkdir(parents=True)
    gpu_page.keep(gpu_results("Card A 80GB, 1.2", 9.0), tmp_path)
    gpu_page.keep(gpu_results("Card B, 1.2", 0.25), tmp_path)
    gpu_page.keep(gpu_results("Card A 80GB, 1.3", 0.125), tmp_path)  # a newer driver replaces what was
    gpu_page.write(tmp_path)
    text = (tmp_path / gpu_page.PAGE).read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## Card A 80GB", "## Card B"]
    assert "| decoder | - | - | 0.125 (0.062) | - | 0.250 (0.125) | 35 | 1.0e-07 |" in text
    assert "9.000" not in text
    assert text.count("over Shaderloom's: 2.00 in the geometric mean, least 2.00 (decoder)") == 2
    assert "* decoder, gpu_onnxruntime: no adapter" in text
    row = "2.00 (3.00) | 1.50 (3.00) | 1.25 (3.00) | 0.50 + 0.25 + 1.25 | 0.12 / 0.12 / 0.12 |"
    assert f"| decoder | shaderloom | {row}" in text
    assert "| decoder | onnxruntime | no |" in text
    gpu_page.keep(decoder_results("Card A 80GB, 1.4"), tmp_path)  # a part replaces itself alone
    gpu_page.write(tmp_path)
    text = (tmp_path / gpu_page.PAGE).read_text()
    assert [line for line in text.splitlines() if line.startswith("#")][1:] == [
        "## Card A 80GB", "### Decoders", "## Card B",
    ]  # fmt: skip
    assert "| Qwen2.5-0.5B | token at 512 | 1.250 (1.000) | - | 1.500 (1.375) |" in text
    assert "| decoder | - | - | 0.125 (0.062) |" in text
    assert "logits from onnxruntime's CPU provider: Qwen2.5-0.5B 2.0e-03" in text
    gpu_page.draw(tmp_path)
    pictures = {path.name for path in (tmp_path / gpu_page.PAGE.parent).glob("*.png")}
    assert pictures in (set(), {"gpus-card-a-80gb.png", "gpus-card-b.png"})  # without matplotlib


@pytest.mark.slow
def test_starts_of_processes(tmp_path) -> None:
    """Three processes of ours share a home of their own and so the plan of the first; one that fails says why."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[4] x) => (float[4] y) { y = Exp(x) }'
    )
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones(4, np.float32))
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}

    def command(path):
        job = Job(str(path), str(tmp_path / "x.npz"), str(tmp_path / "y.npz"), ["y"], str(path))
        return [
            sys.executable,
            "-m",
            "bench.workers.shaderloom_session",
            json.dumps(dataclasses.asdict(job)),
        ]

    found, cold, worker = starts.start_processes(command(tmp_path / "m.onnx"), environment, runs=2)
    last = worker.finish()["facts"]
    home = worker.home.name
    worker.kill()
    assert not os.path.exists(home)
    assert (cold["from_disk"], last["from_disk"]) == (False, True)
    assert len(found) == len(starts.PROCESSES)
    for start in found:
        assert 0 < start["create_s"] + start["first_s"] < start["start_s"] < PATIENCE
        assert start["cpu_s"] > 0 and start["run_ms"] > 0
    commands = {"runs": command(tmp_path / "m.onnx"), "fails": command(tmp_path / "none.onnx")}
    turns = starts.start_in_turns(commands, environment, runs=1, rounds=2)
    assert list(turns) == list(commands) and len(turns["runs"]) == len(starts.PROCESSES)
    (failed,) = turns["fails"]
    assert "there is no file" in failed["error"]


def test_starts_that_are_measured_alone_leave_the_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    report.save_models([measured("resnet18", "shaderloom", 2.0, 2.0), measured("resnet50", "ncnn", 3.0)])
    start = {"start_s": 2.0, "create_s": 0.25, "first_s": 1.25, "cpu_s": None}
    alone = Result("resnet18", "shaderloom", "lavapipe", "2026-02-01", starts=[start, {**start, "start_s": 1.5}])
    report.save_models([alone])
    stored = {result.model: result for result in report.load_models("lavapipe")}
    assert (stored["resnet18"].median_ms, stored["resnet18"].started) == (2.0, "2026-02-01")
    assert starts.load_note([start, {**start, "load": 0.5}]) == ""
    assert "1 of the starts shared" in starts.load_note([start, {**start, "load": 3.0}])
    table = report.start_table(list(stored.values()))
    assert "| resnet18 | Shaderloom | 2.00 | 1.50 |  | 0.50 + 0.25 + 1.25 |" in table


def test_compile_times_of_a_part_replace_that_part(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    model = dataclasses.replace(compile_time(80, 1.0), name="resnet18")
    report.save_compile([model], [compile_time(2000, 1.0), compile_time(500, 1.0)], "2026-01-01")
    report.save_compile([], [compile_time(500, 3.0)], "2026-01-02")
    stored = json.loads((tmp_path / "compile.json").read_text())
    assert [item["name"] for item in stored["models"]] == ["resnet18"]
    assert [(item["nodes"], item["wall_s"]) for item in stored["graphs"]] == [(500, 3.0), (2000, 1.0)]


def test_a_pass_that_grows_too_fast_is_named():
    small, large = compile_time(2000, 1.0), compile_time(8000, 4.0)
    small.passes_ms = {"fuse": 100.0, "layout": 100.0, "short": 0.1}
    large.passes_ms = {"fuse": 2000.0, "layout": 500.0, "short": 40.0}
    assert steep_passes(small, large) == ["fuse"]
    text = report.compile_tables([], [small, large])
    assert "fuse in chain from 2000 to 8000 nodes" in text
    assert "| chain | layout | 100 | 500 |" in text


def test_the_table_of_pages_has_medians_and_errors():
    def start(cpu: float, task: float) -> dict[str, object]:
        return {"shipped_bytes": 79_000, "shipped_gzip_bytes": 29_000, "cpu_s": cpu, "memory_bytes": 2e8,
                "longest_task_ms": task}  # fmt: skip

    ours = [start(3.0, 0), start(9.0, 70), start(2.0, 0)]
    lines = pages.table({"m": {"ours": ours, "theirs": [start(1.0, 60)], "other": [{"error": "no"}]}}).splitlines()
    assert lines[2] == "| m | ours | 79 KB | 29 KB | 3.0 s | 200 MB | none |"
    assert lines[3].endswith("| 1.0 s | 200 MB | 60 ms |")
    assert lines[4].startswith("| m | other | no |")


def test_the_table_of_features_is_that_of_what_was_measured():
    results = json.loads(page_features.RESULTS.read_text())
    table = page_features.table(results)
    assert table in page_features.GUIDE.read_text(), "python -m bench.page_features --page writes it"
    ours, peer, _ = results["loss"]
    results["damage"][ours] = {"difference": 0.5}
    results["loss"][peer] = {"run": "never ends", "again": "works"}
    changed = page_features.table(results)
    assert "| runs; the output is off by 0.5 |" in changed
    assert "| an error | never ends | " in changed


def test_a_section_of_sessions_replaces_its_own_alone(tmp_path, monkeypatch):
    """The page is enough for the others: their figures need not be stored."""
    page, store = tmp_path / "page.md", tmp_path / "sessions.json"
    monkeypatch.setattr(session_report, "PAGE", page)
    monkeypatch.setattr(session_report, "STORE", store)
    page.write_text("# Old\n\nOld words.\n\n## Memory\n\nOld figures.\n\n## What many runs leave behind\n\nOld runs.\n")

    def save(repeats: int) -> list[str]:
        row = {"what": "runs", "repeats": repeats, "growth": 5000, "objects": 0, "device": "the same"}
        session_report.save("leaks", {"device": "llvmpipe", "results": [row]})
        head, *sections = page.read_text().split("\n\n## ")
        assert head == session_report.HEAD.strip()
        return sections

    for repeats in (1000, 2000):
        memory, leaks = save(repeats)
        assert memory == "Memory\n\nOld figures."
        assert f"| runs | {repeats:,} | 5 | +0 | the same |" in leaks and "Old runs" not in leaks
        assert json.loads(store.read_text())["leaks"]["results"][0]["repeats"] == repeats
    page.unlink()
    assert len(save(3000)) == 1


def test_names_of_a_command_line_are_those_that_there_are():
    among = {"a": 1, "b b": 2, "c": 3}
    assert chosen("", among) == [1, 2, 3] and chosen("c,b b", among) == [2, 3]
    with pytest.raises(SystemExit, match="there is no d; there are a, b b, c"):
        chosen("a,d", among)
