"""Models over files: arrays, tables and pictures in, Parquet and npz out, stopped and resumed.

Covers: shaderloom/mapping, shaderloom/cli/map.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pyarrow
import pytest
from PIL import Image
from pyarrow import ipc, parquet

from shaderloom.bundles.compile import compile_bundle
from shaderloom.mapping import job

from ...support.command_line import run_command
from ...support.patience import PATIENCE

pytestmark = pytest.mark.slow

SCORES = """
<ir_version: 8, opset_import: ["" : 18]>
scores (float[batch, 4] x) => (float[batch, 4] y, float[batch] best) { e = Exp(x)
    last = Constant<value_ints = [-1]>() s = ReduceSum<keepdims = 1>(e, last) y = Div(e, s)
    best = ReduceMax<keepdims = 0>(y, last) }
"""
MEANS = """
<ir_version: 8, opset_import: ["" : 18]>
means (float[1, 3, 8, 6] image) => (float[1, 3] y) { a = Constant<value_ints = [2, 3]>()
    y = ReduceMean<keepdims = 0>(image, a) }
"""


#: Only the cpu has texts
TEXTS = """
<ir_version: 8, opset_import: ["" : 20]>
texts (int64[n] x) => (string[n] y, bool[n] z) <string[1] mark = {"-"}> { t = Cast<to = 8>(x)
    y = StringConcat(t, mark) z = Equal(y, mark) }
"""


def save(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(tmp_path / "scores.onnx", SCORES)


def rows_of(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 4), dtype=np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64))
    return e / e.sum(-1, keepdims=True)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


def table_of(folder: Path) -> pyarrow.Table:
    return pyarrow.concat_tables([parquet.read_table(path) for path in parts(folder)])


def test_arrays_become_arrays(model, tmp_path):
    x = rows_of(250)
    np.save(tmp_path / "a.npy", x[:130])
    np.savez(tmp_path / "b.npz", x=x[130:], other=np.zeros(3))
    output = tmp_path / "out"
    run_command(
        "map", model, tmp_path / "a.npy", tmp_path / "b.npz", "-o", output, "--part-rows", 100, "--devices", "cpu"
    )
    loaded = [np.load(path) for path in parts(output)]
    assert [len(part["y"]) for part in loaded] == [100, 30, 100, 20]
    np.testing.assert_allclose(np.concatenate([part["y"] for part in loaded]), softmax(x), rtol=1e-5)
    np.testing.assert_allclose(np.concatenate([part["best"] for part in loaded]), softmax(x).max(-1), rtol=1e-5)
    assert [*loaded[2]["row"][:2], str(loaded[2]["file"][0])] == [0, 1, str(tmp_path / "b.npz")]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tables_become_tables(kind, model, tmp_path, device):
    x = rows_of(1000)
    columns = {"id": [f"row {row}" for row in range(1000)], "numbers": list(x.astype(np.float64)), "n": range(1000)}
    table, path = pyarrow.table(columns), tmp_path / f"t.{kind}"
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=300)
    else:
        with ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=300)
    output = tmp_path / "out"
    options = ("--columns", "x=numbers,id", "--part-rows", 400, "--devices", device.name)
    run_command("map", model, path, "-o", output, *options)
    result = table_of(output)
    assert result["id"].to_pylist() == columns["id"]
    np.testing.assert_allclose(np.array(result["y"].to_pylist()), softmax(x), rtol=1e-5)
    np.testing.assert_allclose(result["best"].to_numpy(), softmax(x).max(-1), rtol=1e-5)
    assert result.schema.field("y").metadata[b"shape"] == b"4"


def test_the_folder_of_a_result_is_a_data_set_of_parquet(model, tmp_path):
    parquet.write_table(pyarrow.table({"x": list(rows_of(50))}), tmp_path / "t.parquet")
    run_command("map", model, tmp_path / "t.parquet", "-o", tmp_path / "out", "--devices", "cpu", "--part-rows", 20)
    assert parquet.read_table(tmp_path / "out")["row"].to_pylist() == list(range(50))


def test_what_only_the_cpu_runs_is_mapped_there(tmp_path):
    model = save(tmp_path / "texts.onnx", TEXTS)
    np.save(tmp_path / "x.npy", np.arange(3))
    for form in ("npz", "parquet"):
        run_command("map", model, tmp_path / "x.npy", "-o", tmp_path / form, "--devices", "cpu", "--format", form)
    with np.load(parts(tmp_path / "npz")[0]) as arrays:
        assert arrays["y"].tolist() == ["0-", "1-", "2-"] and not arrays["z"].any()
    assert parquet.read_table(tmp_path / "parquet")["y"].to_pylist() == ["0-", "1-", "2-"]
    refused = run_command("map", model, tmp_path / "x.npy", "-o", tmp_path / "other", status=1)
    assert "StringConcat" in refused.output


def test_a_model_without_inputs_has_no_rows(tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 18]> g () => (float[1] y) { y = Constant<value_floats = [1.0]>() }'
    model = save(tmp_path / "one.onnx", text)
    np.save(tmp_path / "x.npy", rows_of(3))
    refused = run_command("map", model, tmp_path / "x.npy", "-o", tmp_path / "out", "--devices", "cpu", status=1)
    assert "no inputs" in refused.output


def test_a_bundle_is_mapped(model, tmp_path, device):
    x = rows_of(20)
    np.save(tmp_path / "x.npy", x)
    compile_bundle(model, tmp_path / "scores", shapes=[{"x": (rows, 4)} for rows in (1, 8)])
    output = tmp_path / "out"
    run_command("map", tmp_path / "scores", tmp_path / "x.npy", "-o", output, "--devices", device.name)
    np.testing.assert_allclose(np.load(parts(output)[0])["y"], softmax(x), rtol=1e-5)
    compile_bundle(model, tmp_path / "other", shapes=[{"x": (1, 4)}])
    refused = run_command("map", tmp_path / "other", tmp_path / "x.npy", "-o", output, status=1)
    assert "another model" in refused.output


def test_pictures_of_a_folder(tmp_path):
    model = save(tmp_path / "means.onnx", MEANS)
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    colours = [(255, 0, 0), (0, 128, 255), (10, 20, 30)]
    for number, colour in enumerate(colours):
        Image.new("RGB", (20 + number, 30), colour).save(folder / ("more" if number else ".") / f"{number}.png")
    output = tmp_path / "out"
    options = ("--image", "6x8", "--mean", "0.5", "--std", "0.5,0.25,0.125", "--devices", "cpu")
    run_command("map", model, folder, "-o", output, *options)
    result = table_of(output)
    expected = (np.array(colours) / 255 - 0.5) / [0.5, 0.25, 0.125]
    np.testing.assert_allclose(np.array(result["y"].to_pylist()), expected, rtol=1e-4)
    assert [Path(file).name for file in result["file"].to_pylist()] == ["0.png", "1.png", "2.png"]


def test_encoded_pictures_of_a_table_and_errors(tmp_path, device):
    model = save(tmp_path / "means.onnx", MEANS)
    file = io.BytesIO()
    Image.new("L", (9, 9), 51).save(file, "PNG")
    pictures = [file.getvalue(), b"no picture", file.getvalue(), None]
    parquet.write_table(pyarrow.table({"image": pictures}), tmp_path / "t.parquet")
    options = ("map", model, tmp_path / "t.parquet", "--image", "6x8", "--batch", "open", "--devices", device.name)
    failed = run_command(*options, "-o", tmp_path / "stopped", status=1)
    assert "row 1 of" in failed.output and not parts(tmp_path / "stopped")
    run_command(*options, "-o", tmp_path / "recorded", "--on-error", "record")
    result = table_of(tmp_path / "recorded")
    assert [value is None for value in result["y"].to_pylist()] == [False, True, False, True]
    errors = result["error"].to_pylist()
    assert [errors[0], errors[2]] == [None, None] and "row 1 of" in errors[1] and "row 3 of" in errors[3]
    np.testing.assert_allclose(result["y"].to_pylist()[0], [0.2, 0.2, 0.2], rtol=1e-5)


def test_a_result_is_of_one_job(model, tmp_path):
    np.save(tmp_path / "a.npy", rows_of(10))
    command = ("map", model, tmp_path / "a.npy", "-o", tmp_path / "out", "--devices", "cpu")
    run_command(*command)
    again = json.loads(run_command(*command, "--json").stdout)
    assert (again["rows"], again["computed"]) == (10, 0)
    assert "options: not the same are part rows [" in run_command(*command, "--part-rows", 3, status=1).output
    np.save(tmp_path / "a.npy", rows_of(11))
    assert "options: not the same are inputs [" in run_command(*command, status=1).output
    np.save(tmp_path / "a.npy", np.full((4, 3), "none"))
    command = (*command[:3], "-o", tmp_path / "failed", *command[5:])
    run_command(*command, status=1)
    np.save(tmp_path / "a.npy", rows_of(4))
    assert json.loads(run_command(*command, "--json").stdout)["computed"] == 4
    (tmp_path / "failed" / "_manifest.json").write_bytes(b"\xff")
    assert "another model" in run_command(*command, status=1).output
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    refused = run_command("map", model, tmp_path / "a.npy", "-o", tmp_path / "other", "--devices", "cpu", status=1)
    assert "not empty" in refused.output and (tmp_path / "other" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("missing.npy",), "there is no file"),
        (("model.txt",), "has no rows"),
        (("wrong.npy",), "does not fit"),
        (("pictures",), "--image 224x224"),
        (("a.npy", "--columns", "z=a"), "no input 'z'"),
        (("a.npy", "--batch", "many"), "--batch wants"),
        (("a.npy", "--mean", "1"), "for pictures"),
        (("a.npy", "--devices", "0,"), "each an index or a part of a name"),
        (("pictures", "--image", "12"), "WIDTHxHEIGHT"),
        (("a.npy", "--on-error", "record"), "recorded in Parquet"),
        (("t.parquet",), "no column 'x' for the input [--columns x=COLUMN, of u, v]"),
        (("t.parquet", "--columns", "x=u,row"), "of its own"),
        (("a.npy", "--columns", "id"), "no column 'id'"),
        (("a.npy", "--image", "4x4"), "not for arrays"),
        (("a.npy", "--batch", "²"), "--batch wants"),
        (("a.npy", "--devices", "²"), "no adapter matches"),
        (("empty",), "no pictures"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, reason, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", rows_of(3))
    np.save("wrong.npy", np.zeros((3, 5), np.float32))
    Path("model.txt").write_text("")
    Path("pictures").mkdir()
    Path("empty").mkdir()
    Image.new("RGB", (4, 4)).save("pictures/a.png")
    parquet.write_table(pyarrow.table({"u": [1.0], "v": [2.0]}), "t.parquet")
    result = run_command("map", model, "--devices", "cpu", *arguments, "-o", "out", status=1)
    assert reason in result.output
    assert "Traceback" not in result.output


def test_progress_is_told_ten_times_a_second_and_at_the_end(monkeypatch):
    told: list[tuple[int, int]] = []
    report = job._Report(lambda what, done, total: told.append((done, total)), 200)
    monkeypatch.setattr(job.time, "monotonic", itertools.count(0, 0.01).__next__)
    for _ in range(200):
        report.count()
    assert len(told) in range(20, 23) and told[-1] == (200, 200)


def test_a_killed_job_is_resumed_without_loss(model, tmp_path):
    """Twenty times killed at random moments; then every row is there once, and right."""
    x = rows_of(6000)
    parquet.write_table(pyarrow.table({"x": list(x), "id": range(len(x))}), tmp_path / "t.parquet", row_group_size=999)
    output = tmp_path / "out"
    command = [sys.executable, "-m", "shaderloom", "map", str(model), str(tmp_path / "t.parquet"), "-o", str(output)]
    command += ["--columns", "id", "--part-rows", "37", "--devices", "cpu", "--json"]
    moments = random.Random(20)
    for _ in range(20):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        enough = len(parts(output)) + moments.randrange(10)
        while process.poll() is None and len(parts(output)) < enough:
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.02))  # anywhere in the next part
        process.kill()
        process.communicate(timeout=PATIENCE)
        for path in parts(output):
            assert path.suffix == ".unfinished" or parquet.read_metadata(path).num_rows in (37, 6000 % 37)
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    assert json.loads(done.stdout)["rows"] == 6000
    result = table_of(output)
    assert result["id"].to_pylist() == list(range(6000))
    np.testing.assert_allclose(np.array(result["y"].to_pylist()), softmax(x), rtol=1e-5)
    assert {path.name for path in output.iterdir()} == {
        "_manifest.json",
        ".lock",
        *(path.name for path in parts(output)),
    }
