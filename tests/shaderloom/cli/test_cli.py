"""The command line: what it prints of runs, inspections and results.  Covers: shaderloom/cli."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer
from typer.testing import CliRunner

from shaderloom.cli import _print_warning, app
from shaderloom.cli.common import format_bytes, parse_dynamic, parse_shapes
from shaderloom.cli.inspect_output import print_wgsl
from shaderloom.compiler.target import target_of
from shaderloom.cpu.provider import read_header
from shaderloom.model.feeds import complete_shapes
from shaderloom.runtime.plan.device_profile import DeviceProfile
from shaderloom.runtime.plan.errors import InputError
from shaderloom.runtime.plan.size_range import read_ranges

from ...compiler.codegen.test_sharing import array, compiled
from ...compiler.codegen.test_sharing import model as chain
from ...support.patience import PATIENCE
from ...support.programs import parse


def test_an_open_first_dimension_is_1_and_others_are_asked_for(shaderloom, path, tmp_path):
    with pytest.warns(UserWarning, match=r"the shape of 'x' is taken as 1: the model declares \[N\] \(--shape says"):
        assert json.loads(shaderloom("run", path, "--json").stdout)["inputs"][0]["shape"] == [1]
    with pytest.warns(UserWarning, match="the shape of 'x' is taken as 7"):
        facts = json.loads(shaderloom("run", path, "--dynamic", "N=7:40", "--json").stdout)
    assert facts["inputs"][0]["shape"] == [7]
    text = "g (float[n, m] x, float[k, m] z) => (float[p, q] y) { t = Neg(z)  y = Concat<axis = 0>(x, t) }"
    onnx.save(parse(text), tmp_path / "two.onnx")
    output = shaderloom("run", tmp_path / "two.onnx", status=1).output
    assert "tensor 'x': the model declares [n, m], so its shape is not known" in output
    assert "[give the sizes: --shape x=..., or shapes in Python]" in output


def test_sizes_follow_from_the_shapes_of_other_inputs(tmp_path):
    text = "g (float[n, m] x, float[k, m] z) => (float[p, q] y) { t = Neg(z)  y = Concat<axis = 0>(x, t) }"
    header = read_header(parse(text))
    with pytest.warns(UserWarning, match="the shape of 'z' is taken as 1x5"):
        assert complete_shapes(header, {"x": (2, 5)}) == {"x": (2, 5), "z": (1, 5)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a plan for a range assumes no size of it
        dynamic = read_ranges(dict.fromkeys("nmk", (3, 9)))
        assert complete_shapes(header, {}, dynamic) == {"x": (3, 3), "z": (3, 3)}


def test_run_on_the_cpu_alone(device, cache_folder, path):
    pytest.importorskip("onnxruntime")
    for storage in ([], ["--f16"]):  # half precision is without effect under cpu
        result = CliRunner().invoke(app, ["run", str(path), "--shape", "x=10", "--providers", "cpu", *storage])
        assert result.exit_code == 0, result.output
    assert re.search(r"^\d+\.\d\d ms the first run on cpu$", result.output, re.MULTILINE)
    result = CliRunner().invoke(app, ["run", str(path), "--shape", "x=10", "--providers", "tpu"])
    assert (result.exit_code, "there is no provider 'tpu'" in result.output) == (1, True)


def test_hints_speak_of_the_option(shaderloom, tmp_path):
    onnx.save(parse("g (string[n] x) => (string[n] y) { y = StringNormalizer(x) }"), tmp_path / "text.onnx")
    output = shaderloom("run", tmp_path / "text.onnx", "--shape", "x=2", status=1).output
    assert "--providers wgpu,cpu leaves" in output
    onnx.save(parse("g (float[n, 4] x) => (float[n, 4] y) { y = Neg(x) }"), tmp_path / "rows.onnx")
    output = shaderloom("run", tmp_path / "rows.onnx", "--shape", "x=3x5", status=1).output
    assert "expected 4: the model declares [n, 4] [--input gives the values of an input, --shape its shape]" in output


def test_hints_name_a_command_that_has_the_option(shaderloom, tmp_path):
    text = "g (string[n] x, string[n] z) => (string[n] y, string[n] w) { y = StringNormalizer(x)  w = Identity(z) }"
    onnx.save(parse(text), tmp_path / "text.onnx")
    arguments = (tmp_path / "text.onnx", "--shape", "x=2", "--shape", "z=2")
    for command in (("compile", *arguments, "-o", tmp_path / "b"), ("tune", *arguments)):
        output = shaderloom(*command, status=1).output
        assert "[shaderloom run --providers wgpu,cpu leaves" in " ".join(output.split()), output
    onnx.save(parse("g (float[3] x) => (float[3] y) { y = Neg(x) }"), tmp_path / "rows.onnx")
    output = shaderloom("profile", tmp_path / "rows.onnx", "--providers", "cpu", status=1).output
    assert "open it with --providers wgpu,cpu" in " ".join(output.split())


def test_inspect_and_compile_take_providers(compiling, path, tmp_path):
    onnx.save(
        parse("g (double[3] x, float[3] z) => (double[3] y, float[3] w) { y = Sin(x)  w = Neg(z) }"), tmp_path / "m"
    )
    view = ("inspect", tmp_path / "m", "--show", "placement")
    for providers in ((), ("--providers", "wgpu,cpu")):
        assert "1 wgpu, 1 cpu" in compiling(*view, *providers).output
    for command in (view, ("inspect", tmp_path / "m")):
        output = " ".join(compiling(*command, "--providers", "wgpu", status=1).output.split())
        assert "float64" in output and "nothing" not in output
        output = " ".join(compiling(*command, "--providers", "cpu,wgpu", status=1).output.split())
        assert "what runs on the cpu is not compiled [write --providers wgpu, or wgpu,cpu]" in output
    compiling("compile", path, "--shape", "x=10", "--providers", "wgpu", "-o", tmp_path / "b.shaderbundle")
    output = compiling(
        "compile", path, "--shape", "x=10", "--providers", "wgpu,cpu", "-o", tmp_path / "c", status=1
    ).output
    assert "a bundle runs on wgpu alone" in output
    output = compiling("inspect", tmp_path / "b.shaderbundle", "--providers", "wgpu", status=1).output
    assert "--providers is for models" in output


@pytest.mark.parametrize("command", ["run", "profile"])
def test_options_of_bundles_are_refused_by_their_names(compiling, path, command):
    output = " ".join(compiling(command, path, "--trust", status=1).output.split())
    assert "error: input: --trust is for bundles: a model's shaders are generated here [leave it out]" in output


def test_run_says_where_it_ran_and_which_run_was_timed(compiling, tmp_path):
    pytest.importorskip("onnxruntime")
    onnx.save(parse("g (double[3] x) => (double[3] y) { y = Sin(x) }"), tmp_path / "double.onnx")
    onnx.save(parse("g (float[3] x) => (int64[1, k] y) { y = NonZero(x) }"), tmp_path / "steps.onnx")
    output = compiling("run", tmp_path / "double.onnx", "--providers", "wgpu,cpu").output
    assert re.search(r"^\d+\.\d\d ms a run after the first on cpu$", output, re.MULTILINE), output
    output = compiling("run", tmp_path / "steps.onnx").output
    assert re.search(r"stages?, \d+\.\d\d ms a run after the first on ", output), output


def test_indices_are_checked_by_option(compiling, path, tmp_path):
    onnx.save(parse("g (float[5, 4] t, int64[m] i) => (float[m, 4] y) { y = Gather(t, i) }"), tmp_path / "g.onnx")
    np.save(tmp_path / "i.npy", np.array([4, 5]))
    arguments = (tmp_path / "g.onnx", "--input", f"i={tmp_path / 'i.npy'}")
    compiling("run", *arguments)  # the device clamps
    for command in ("run", "profile"):
        output = " ".join(compiling(command, *arguments, "--check-indices", status=1).output.split())
        assert "Gather (main node 0): indices element out of data bounds, idx=5" in output
    np.save(tmp_path / "i.npy", np.array([4, -5]))
    compiling("run", *arguments, "--check-indices")
    compiling("compile", path, "--shape", "x=10", "-o", tmp_path / "b.shaderbundle")
    assert "plan from the bundle in" in compiling("run", tmp_path / "b.shaderbundle").output
    output = " ".join(compiling("run", tmp_path / "b.shaderbundle", "--check-indices", status=1).output.split())
    assert "--check-indices is for models: a bundle has no means to check indices [leave it out]" in output


def test_warnings_speak_of_the_option(capsys):
    _print_warning("'cpu' does (session.placement() lists them); providers=['cpu'] is\nfaster")
    shown = capsys.readouterr().err
    assert shown == (
        "warning: 'cpu' does (shaderloom inspect MODEL --show placement lists them); --providers cpu is faster\n"
    )


def test_run_from_a_file_to_a_file(shaderloom, path, tmp_path):
    x = np.random.default_rng(3).random(20, np.float32)
    np.save(tmp_path / "x.npy", x)
    shaderloom("run", path, "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as results:
        assert results.files == ["y"]
        np.testing.assert_allclose(results["y"], (x * 2 + 2 * np.tile(np.arange(10), 2)) * 2, rtol=1e-6)


def test_run_prints_json_alone(shaderloom, path):
    result = shaderloom("run", path, "--shape", "x=30", "--json", "--repeat", 3)
    facts = json.loads(result.stdout)
    assert facts["outputs"][0].keys() == {"name", "dtype", "shape", "min", "max", "mean", "not_finite"}
    assert facts["outputs"][0]["shape"] == [30]
    assert facts["calls"] == 2
    assert facts["run_ms"] > 0
    again = json.loads(shaderloom("run", path, "--shape", "x=30", "--json").stdout)
    assert again["outputs"] == facts["outputs"], "random inputs are seeded"
    assert (facts["from_disk"], again["from_disk"]) == (False, True)
    other = json.loads(shaderloom("run", path, "--shape", "x=30", "--json", "--seed", 1).stdout)
    assert other["outputs"] != facts["outputs"]


def test_run_prints_a_table(shaderloom, path):
    output = shaderloom("run", path, "--shape", "x=30", "--input", "x=random").output
    assert re.search(r"y\s*│ float32\s*│ 30\s*│", output)
    assert "2 calls" in output


def test_inspect_json_tells_what_was_compiled(shaderloom, path):
    text = shaderloom("inspect", path, "--shape", "x=20", "--json").stdout
    facts = json.loads(text)
    assert (facts["nodes"], facts["calls"], facts["weight_transforms"]) == (3, 2, 1)
    assert [kernel["template"] for kernel in facts["kernels"]] == ["map", "map"]
    for kernel in facts["kernels"]:
        assert kernel["key"].startswith(kernel["id"])
        assert {"origins", "grid", "workgroup", "bindings"} <= kernel.keys()
    assert facts["arenas"] == [336]
    assert shaderloom("inspect", path, "--shape", "x=20", "--json").stdout == text


def test_inspect_stages(shaderloom, path):
    graph = shaderloom("inspect", path, "--shape", "x=10", "--show", "graph").output
    assert "Mul" in graph
    fused = shaderloom("inspect", path, "--shape", "x=10", "--show", "fused").output
    assert "Mul (main node 0)" in fused
    facts = json.loads(shaderloom("inspect", path, "--shape", "x=10", "--show", "fused", "--json").stdout)
    assert [group["family"] for group in facts["groups"] if group["when"] == "run"] == ["map"]
    plan = shaderloom("inspect", path, "--shape", "x=10").output
    assert "2 calls a run, 1 weight transform\n" in plan


def test_inspect_shows_one_shader(shaderloom, path):
    every = shaderloom("inspect", path, "--shape", "x=20", "--show", "wgsl").output
    assert every.count("fn main") == 2
    first = shaderloom("inspect", path, "--shape", "x=20", "--show", "wgsl", "--kernel", 0).output
    assert first.count("fn main") == 1
    identity = re.search(r"kernel ([0-9a-f]{12})", first).group(1)
    by_id = shaderloom("inspect", path, "--shape", "x=20", "--show", "wgsl", "--kernel", identity[:8]).output
    assert by_id == first
    wrong = shaderloom("inspect", path, "--shape", "x=20", "--kernel", "zzz", status=1)
    assert "no kernel 'zzz'" in wrong.stderr


def test_devices(shaderloom, device):
    assert device.name.split(" (")[0] in shaderloom("devices").output
    rows = json.loads(shaderloom("devices", "--json").stdout)
    assert [row["index"] for row in rows] == list(range(len(rows)))
    assert rows[0]["limits"]["max-buffer-size"] > 0
    for row in rows:
        target = target_of(DeviceProfile(row["kind"], f"{row['name']} {row['driver']}", adapter=row["name"]))
        assert row["target"] == target.name
        assert f"target: {target.name}" in shaderloom("devices").output


def test_cache_commands(shaderloom, path, cache_folder, monkeypatch):
    shaderloom("run", path, "--shape", "x=30")
    state = json.loads(shaderloom("cache", "info", "--json").stdout)
    assert (state["folder"], state["entries"]) == (str(cache_folder), 3)  # the header, a plan, and its sizes
    assert "3 entries" in shaderloom("cache", "info").output
    assert "3 entries removed" in shaderloom("cache", "clear").output
    listed = shaderloom("cache", status=2).output
    assert "clear" in listed and "error" not in listed
    assert "0 entries" in shaderloom("cache", "info").output
    shaderloom("run", path, "--shape", "x=30", "--no-cache")
    assert "0 entries" in shaderloom("cache", "info").output
    monkeypatch.setenv("SHADERLOOM_CACHE", "off")
    assert "off" in shaderloom("cache", "info").output


def test_help_teaches_with_examples(shaderloom):
    assert "COMMAND" in shaderloom("--help").output
    for command in ("run", "inspect", "devices"):
        assert f"shaderloom {command}" in shaderloom(command, "--help").output.replace("\n", " ")


def test_help_is_wrapped_to_the_terminal_alone():
    """Lines of a docstring are no lines of the help, but paragraphs and the indentation of examples stay."""
    text = typer.main.get_command(app).commands["map"].help
    assert "or a picture. The folder has" in text.replace("\n", "|") and "\n\n  shaderloom map" in text


#: Names that mean something else in one command, which explains them itself
OF_THEIR_OWN = {
    ("--output", "run"): "a file of outputs",
    ("--output", "compile"): "a bundle",
    ("--output", "repro"): "a script",
    ("--shape", "compile"): "an input that is named again starts the next shape key",
    ("--input", "compile"): "nothing random: samples are kept",
    ("--output", "convert"): "a folder",
    ("--output", "map"): "a folder that may be there",
    ("--seed", "generate"): "of draws, another one each time",
    ("--seed", "chat"): "of draws, another one each time",
}


def test_an_option_is_the_same_in_every_command():
    """Its names, what it takes and its explanation; its default too, but for the number of runs."""
    group = typer.main.get_command(app)
    found: dict[str, set[object]] = {}
    for command, definition in group.commands.items():
        for option in definition.params:
            name = option.opts[-1] if option.opts[0] == "-o" else option.opts[0]
            if (name, command) in OF_THEIR_OWN:
                continue
            default = None if name == "--repeat" else repr(option.default)
            stated = (tuple(option.opts), option.metavar, getattr(option, "help", None), default)
            if name != "model":  # some commands take bundles too
                found.setdefault(name, set()).add(stated)
    assert {"--shape", "--device", "--f16", "--option", "--kernel", "--seed"} <= found.keys()
    assert {name: stated for name, stated in found.items() if len(stated) > 1} == {}


def test_as_a_module():
    version = subprocess.run(
        [sys.executable, "-m", "shaderloom", "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert re.fullmatch(r"shaderloom \d+\.\d+\.\d+\n", version.stdout)


def test_shapes_and_ranges_are_parsed():
    assert parse_shapes(["x=1x3x224", "a=b=5", "s=", "y=1,2"]) == {"x": (1, 3, 224), "a=b": (5,), "s": (), "y": (1, 2)}
    assert parse_dynamic(["n=1:4096", "H=64:512:4"]) == {"n": (1, 4096), "H": (64, 512, 4)}
    with pytest.raises(InputError):
        parse_shapes(["x=-1"])


def test_sizes_are_readable():
    assert [format_bytes(size) for size in (0, 1023, 1536, 3 << 20, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 MiB",
        "5.00 GiB",
    ]


@pytest.mark.parametrize(
    "command",
    [
        ["run", "MODEL", "--output", "MODEL"],
        ["inspect", "MODEL", "--html", "MODEL"],
        ["profile", "MODEL", "--trace", "MODEL"],
        ["repro", "MODEL", "--kernel", "0", "-o", "MODEL"],
    ],
)
def test_a_result_does_not_replace_its_model(command: list[str], tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy"]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", ports[:1], ports[1:])), model)
    before = model.read_bytes()
    words = [str(model) if word == "MODEL" else word for word in command]
    done = subprocess.run([sys.executable, "-m", "shaderloom", *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "is the model itself" in done.stderr
    assert model.read_bytes() == before


def test_shared_kernels_are_listed_with_their_problems(capsys):
    proto, _ = chain()
    plan = compiled(proto, array())
    print_wgsl(plan, None, False)
    text = capsys.readouterr().out
    assert "shared by 3 problems, with the numbers of the first" in text
    numbers = ", ".join(f"n{place} = {value}" for place, value in enumerate(plan.problems[0]))
    assert f"// {numbers}\n" in text
