"""Tuning on a device: end to end, bad candidates, and sessions that tune themselves.  Covers: shaderloom/tuner."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import onnx.parser
import pytest
from typer.testing import CliRunner

import shaderloom
from shaderloom.cli import app
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.target import target_of
from shaderloom.compiler.tuning.config_choice import encode
from shaderloom.measurements.database import Database
from shaderloom.measurements.device_records import driver_of
from shaderloom.model.feeds import shape_key
from shaderloom.model.model import Model
from shaderloom.runtime.plan.errors import DeviceError, InputError
from shaderloom.tuner import parent
from shaderloom.tuner.parent import tune
from shaderloom.tuner.search import search
from shaderloom.tuner.tasks import KernelBuilder, shortlist
from shaderloom.tuner.timer import Timer

from ...compiler.tuning.test_config_choice import model, numbers
from ...support.passes import lower_model

SHAPES = {"x": (1, 8, 20, 20)}

#: A model of two problems
SMALL = """<ir_version: 9, opset_import: ["": 21]> g (float[5,8] x) => (float[5,12] y)
<float[8,12] w = {WEIGHT}> {
  a = MatMul(x, w)
  y = Softmax(a)
}"""


def small_model() -> bytes:
    return onnx.parser.parse_model(SMALL.replace("{WEIGHT}", numbers(8 * 12))).SerializeToString()


@pytest.fixture
def database(tmp_path, monkeypatch):
    file = tmp_path / "tuning.json"
    monkeypatch.setenv("SHADERLOOM_TUNING", str(file))
    return file


def tuned(device, database, **options):
    profile = device.profile
    settings = {"budget": 60.0, "candidates": 2, "path": database, **options}
    return tune(model(), SHAPES, adapter=profile.adapter, driver=driver_of(profile), **settings)


def builder(device) -> KernelBuilder:
    return KernelBuilder(lower_model(model(), SHAPES, device.profile), Compilation(target_of(device.profile)), {})


@pytest.mark.slow
def test_tuning_end_to_end(each_device, database, tmp_path):
    """Every problem gets an entry, once; results stay right, and the session says where its configurations are from."""
    seen = []
    result = tuned(each_device, database, progress=lambda *facts: seen.append(facts))
    assert result.rows and not result.left and not result.refused
    assert all(row.entry.ns > 0 and row.entry.analytic_ns > 0 for row in result.rows)
    assert result.method == ("cpu" if each_device.profile.kind == "cpu" else "timestamps")
    assert any(done for _, done, total in seen)
    table = Database.read(database).find(each_device.profile.adapter, driver_of(each_device.profile))
    assert set(table.problems) == {row.problem for row in result.rows}
    again = tuned(each_device, database)
    assert not again.rows and again.present == len(
        [row for row in result.rows if not row.problem.startswith("winograd")]
    )
    x = np.random.default_rng(1).standard_normal(SHAPES["x"], dtype=np.float32)
    with shaderloom.InferenceSession(model(), device=each_device, cache=tmp_path / "cache") as session:
        (found,) = session.run(None, {"x": x})
        sources = {row["source"] for row in session.report()["decisions"] if row["candidates"] > 1}
    with shaderloom.InferenceSession(model(), providers=["cpu"]) as session:
        (expected,) = session.run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert sources == {"tuned"}


def test_a_candidate_with_other_results_is_refused(device):
    made = builder(device)
    task = next(task for task in made.tasks({}) if task.key.startswith("gemm") and "window=3x3" in task.key)
    good, bad = shortlist(task.decision.candidates, 2)

    def build(candidate):
        built = made.with_choice(task, candidate)
        if candidate is bad:  # one that leaves the last rows out
            spec = dataclasses.replace(built.spec, grid=(built.spec.grid[0], 1, 1))
            built = dataclasses.replace(built, spec=spec)
        return built

    outcome = search(device, Timer(device), [good, bad], build, {}, announce=lambda choice: None)
    (refusal,) = outcome.refused
    assert refusal.choice == encode(bad) and "finite" in refusal.why
    assert outcome.entry.choice == encode(good) and outcome.measured == 1


def test_a_candidate_that_the_device_refuses_is_recorded_and_the_rest_measured(device, monkeypatch):
    made = builder(device)
    task = next(task for task in made.tasks({}) if task.key.startswith("gemm"))
    first, second, third = shortlist(task.decision.candidates, 3)

    def build(candidate):
        if candidate is second:
            raise DeviceError("the pipeline failed")
        return made.with_choice(task, candidate)

    outcome = search(device, Timer(device), [first, second, third], build, {}, announce=lambda choice: None)
    assert [(item.choice, item.why) for item in outcome.refused] == [(encode(second), "the pipeline failed")]
    assert outcome.measured == 2
    left_out = search(
        device, Timer(device), [first, second], build, {}, announce=lambda choice: None, refused=[encode(second)]
    )
    assert not left_out.refused and left_out.measured == 1


def test_the_best_must_gain_twice(device, monkeypatch):
    made = builder(device)
    task = next(task for task in made.tasks({}) if task.key.startswith("gemm"))
    candidates = shortlist(task.decision.candidates, 2)
    times = iter([*[100.0, 10.0] * 3, *[100.0, 99.0] * 3])  # faster at first, not when measured again
    timer = Timer(device)
    monkeypatch.setattr(timer, "repaid_runs", 10**9)
    monkeypatch.setattr(timer, "steady", lambda dispatches, repeats: next(times))
    outcome = search(
        device, timer, candidates, lambda each: made.with_choice(task, each), {}, announce=lambda choice: None
    )
    assert outcome.entry.choice == outcome.entry.analytic == encode(candidates[0])


def test_a_candidate_that_ends_the_process_is_refused_and_tuning_goes_on(device, database, monkeypatch):
    """The process is one that ends while it tries a tile, then one that finishes without it."""
    script = (
        "import json, sys, os\n"
        "job = json.loads(sys.stdin.read())\n"
        "say = lambda **facts: print('@shaderloom-tuning ' + json.dumps(facts), flush=True)\n"
        "say(kind='device', method='cpu')\n"
        "if not job['refused']:\n"
        "    say(kind='trying', choices={'gemm m=1': {'form': 'bad'}})\n"
        "    print('LLVM ERROR', file=sys.stderr, flush=True)\n"
        "    os.abort()\n"
        "assert job['refused'] == {'gemm m=1': [{'form': 'bad'}]}\n"
        "say(kind='done', left=0)\n"
    )
    popen = parent.subprocess.Popen
    monkeypatch.setattr(
        parent.subprocess, "Popen", lambda command, **options: popen([sys.executable, "-c", script], **options)
    )
    result = tuned(device, database)
    ((problem, refusal),) = result.refused
    assert problem == "gemm m=1" and refusal.choice == {"form": "bad"}
    assert "signal 6" in refusal.why and "LLVM ERROR" in refusal.why
    table = Database.read(database).find(device.profile.adapter, driver_of(device.profile))
    assert table.refused == {"gemm m=1": [refusal]}, "a later tuning does not try it again"


def test_the_error_of_a_worker_is_whole(device, database, tmp_path):
    text = '<ir_version: 9, opset_import: ["": 21]> g (double[2] x) => (double[2] y) { y = Sin(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "double.onnx")
    result = CliRunner().invoke(app, ["tune", str(tmp_path / "double.onnx"), "--device", device.name])
    assert result.exit_code == 1
    assert " ".join(result.output.split()).startswith("error: support at Sin (main node 0; ai.onnx opset 21)")


def test_what_cannot_be_tuned_is_one_error(device, database, monkeypatch):
    database.write_text("{")
    with pytest.raises(InputError, match="not a database"):
        tuned(device, database)
    database.unlink()
    with pytest.raises(InputError):
        tuned(device, database, budget=0)
    monkeypatch.setenv("SHADERLOOM_TUNING", "off")
    with pytest.raises(InputError, match="no database"):
        tuned(device, None)


@pytest.mark.slow
def test_a_session_tunes_what_is_new(device, database, tmp_path):
    options = shaderloom.SessionOptions()
    options.tune = 30
    x = np.ones((5, 8), np.float32)
    with shaderloom.InferenceSession(small_model(), options, device=device, cache=tmp_path / "cache") as session:
        (first,) = session.run(None, {"x": x})
        assert {row["source"] for row in session.report()["decisions"] if row["candidates"] > 1} == {"tuned"}
    stamp = database.stat().st_mtime_ns
    with shaderloom.InferenceSession(small_model(), options, device=device, cache=tmp_path / "cache") as session:
        (second,) = session.run(None, {"x": x})
        assert session.report()["from_disk"], "the plan on the disk has the measured configurations"
    assert database.stat().st_mtime_ns == stamp, "nothing was measured again"
    np.testing.assert_array_equal(first, second)
    with pytest.raises(InputError, match="tune"):
        options.tune = "yes"
    with pytest.raises(InputError, match="tune"):
        options.tune = -1


def test_plans_on_the_disk_follow_the_database(device, database, tmp_path):
    def compile_again():
        again = Model(model(), cache=tmp_path / "cache")
        compiled = again.compile(shape_key(again.header, SHAPES, {}), SHAPES, device.profile)
        again.close()
        return compiled

    assert not compile_again().from_disk
    assert compile_again().from_disk
    made = builder(device)
    task = next(task for task in made.tasks({}) if task.key.startswith("gemm"))
    entry = parent.TuningEntry(encode(task.decision.candidates[-1]), 1.0, task.decision.candidate, 2.0)
    stored = Database()
    stored.table(device.profile.adapter, driver_of(device.profile)).problems.update(
        {task.key: entry, "gemm of another model": entry}
    )
    stored.write(database)
    tuned_plan = compile_again()
    assert not tuned_plan.from_disk
    assert {decision.problem: decision.source for decision in tuned_plan.plan.facts.decisions}[task.key] == "tuned"
    assert compile_again().from_disk
    del stored.tables[0].problems["gemm of another model"]
    stored.write(database)
    assert compile_again().from_disk, "what the plan did not ask does not matter"


@pytest.mark.slow
def test_the_command_prints_a_table_or_json(device, database, tmp_path, monkeypatch):
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    file = tmp_path / "model.onnx"
    file.write_bytes(small_model())
    run = CliRunner().invoke(app, ["tune", str(file), "--candidates", "2", "--json"])
    assert run.exit_code == 0, run.output
    facts = json.loads(run.stdout)
    assert facts["adapter"] == device.profile.adapter and facts["problems"] and not facts["left"]
    run = CliRunner().invoke(app, ["tune", str(file), "--candidates", "2"])
    assert run.exit_code == 0 and "0 problems measured" in run.stdout
    shown = CliRunner().invoke(app, ["inspect", str(file)])
    assert shown.exit_code == 0 and "configuration: tuned" in shown.stdout and "configurations: " in shown.stdout
    bundle = tmp_path / "model.shaderbundle"
    run = CliRunner().invoke(app, ["compile", str(file), "-o", str(bundle), "--target", "this-device"])
    assert run.exit_code == 0, run.output
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    assert manifest["decisions"] == {"tuned": len(facts["problems"])}
    shown = CliRunner().invoke(app, ["inspect", str(bundle)])
    assert shown.exit_code == 0 and "configuration: tuned" in shown.stdout, shown.output
