"""Commands that convert, inspect and run decoders.

Covers: shaderloom/cli/generation, shaderloom/cli/generate, shaderloom/cli/chat, shaderloom/cli/bench_tokens,
shaderloom/cli/convert, shaderloom/cli/inspect_folder, shaderloom/generate/token_benchmark.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner

from shaderloom.cli import app
from shaderloom.generate.answer import Generation
from shaderloom.generate.generator import Generator
from shaderloom.runtime.plan.errors import printable_lines

from ...support.command_line import run_command
from ...support.tiny_gguf import TinyGguf
from ..generate.test_encoded_decoder import translator, whisper

__all__ = ["translator", "whisper"]  # fixtures

MESSAGE = [{"role": "user", "content": "the cat"}]


@pytest.fixture(autouse=True)
def environment(device: Any, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    monkeypatch.setenv("COLUMNS", "200")


def test_convert(tiny: TinyGguf, tmp_path: Path):
    output = run_command("convert", tiny.path, "-o", tmp_path / "folder").stdout
    assert "shaderloom chat" in output
    assert (tmp_path / "folder" / "genai_config.json").is_file()
    failed = run_command("convert", tiny.path, "-o", tmp_path / "folder", status=1)
    assert "is there already" in failed.output


def test_generate(folder: Path, generator: Generator):
    wanted = generator.generate(MESSAGE, max_new_tokens=6, stream=False)
    result = run_command("generate", folder, "the cat", "-n", 6)
    assert result.stdout == printable_lines(wanted.text) + "\n"
    assert "6 new" in result.stderr
    facts = json.loads(run_command("generate", folder, "the cat", "-n", 6, "--json").stdout)
    assert (facts["text"], facts["tokens"], facts["ended_by"]) == (wanted.text, wanted.tokens, "length")
    raw = generator.generate("the cat", max_new_tokens=4, temperature=1.0, top_k=9, seed=3, stream=False)
    options = ("--raw", "-n", 4, "--temperature", 1.0, "--top-k", 9, "--seed", 3, "--json")
    facts = json.loads(run_command("generate", folder, "the cat", "--prompt-lookup", 4, *options).stdout)
    assert facts["tokens"] == raw.tokens and facts["accepted_tokens"] <= facts["drafted_tokens"]
    assert "top_p" in run_command("generate", folder, "the", "--top-p", 3, status=1).output


def test_answers_follow_the_grammar_of_a_file(folder: Path, tmp_path: Path):
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.lark"
    schema.write_text(json.dumps({"enum": [{"a": 1}, [2, 3]]}))
    grammar.write_text('start: "no" | "yes"')
    for option, answers in (("--json-schema", ['{"a": 1}', "[2, 3]"]), ("--grammar", ["no", "yes"])):
        path = schema if option == "--json-schema" else grammar
        assert run_command("generate", folder, "the cat", option, path, "-n", 30).stdout.strip() in answers
    assert run_command("generate", folder, "the cat", "--regex", "[ab]{3}c", "-n", 30).stdout.strip()[3:] == "c"
    assert "unclosed" in run_command("generate", folder, "the cat", "--regex", "[a", status=1).output
    assert "no file" in run_command("generate", folder, "the", "--grammar", tmp_path / "no", status=1).output


def test_errors_and_notes_speak_of_the_options_that_there_are(folder: Path, monkeypatch: pytest.MonkeyPatch):
    failed = run_command("generate", folder, "the cat", "--max-length", 5, status=1)
    assert "--max-length" in failed.output and "max_length" not in failed.output
    monkeypatch.delenv("SHADERLOOM_ADAPTER")
    result = run_command("generate", folder, "the", "-n", 1)
    assert "--providers" not in result.stderr


def chat(folder: Path, lines: list[str], *options: str) -> Any:
    arguments = ["chat", str(folder), "-n", "5", *options]
    return CliRunner().invoke(app, arguments, input="\n".join(lines) + "\n")


def test_chat(folder: Path, generator: Generator, tmp_path: Path):
    saved = tmp_path / "chat.json"
    result = chat(folder, ["the cat", f"/save {saved}", "and", "/nonsense", "/reset", "the cat", "/exit", "never"])
    assert result.exit_code == 0, result.output
    first = generator.generate(MESSAGE, max_new_tokens=5, stream=False).text
    assert json.loads(saved.read_text()) == [*MESSAGE, {"role": "assistant", "content": first}]
    turn = [*MESSAGE, {"role": "assistant", "content": first}, {"role": "user", "content": "and"}]
    second = generator.generate(turn, max_new_tokens=5, stream=False).text
    assert result.stdout == printable_lines(f"{first}\n{second}\n{first}\n")
    assert "of them before" in result.stderr
    assert result.stderr.count("/reset forgets") == 2
    assert f"2 messages in {saved}" in result.stderr
    assert "begins anew" in result.stderr


@pytest.mark.parametrize("times", [1, 2])
def test_an_answer_is_interrupted_and_the_chat_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupts: None, times: int
):
    """Once ends the answer with its next token; twice ends the turn at once, which counts for nothing."""
    original, pieces = Generation.__next__, 0

    def interrupted(self: Generation) -> str:
        nonlocal pieces
        pieces += 1
        for _ in range(times if pieces == 2 else 0):
            signal.raise_signal(signal.SIGINT)
        return original(self)

    monkeypatch.setattr(Generation, "__next__", interrupted)
    saved = tmp_path / "chat.json"
    result = chat(folder, ["the cat", f"/save {saved}", "and"], "--system", "in", "-n", "20")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("first token after") == 3 - times
    assert result.stderr.count("20 new") == 1
    assert len(json.loads(saved.read_text())) == 5 - 2 * times


def test_an_interrupt_between_answers_does_not_end_a_chat(
    folder: Path, monkeypatch: pytest.MonkeyPatch, interrupts: None
):
    lines = iter([signal.raise_signal, "the cat"])

    def read() -> str:
        line = next(lines, None)
        if line is None:
            raise EOFError
        return line if isinstance(line, str) else line(signal.SIGINT)

    monkeypatch.setattr("shaderloom.cli.chat.input", read, raising=False)
    result = chat(folder, [])
    assert result.exit_code == 0, result.output
    assert result.stderr.count("/reset forgets") == 2 and result.stderr.count("first token after") == 1


def test_errors_of_a_turn_do_not_end_a_chat(folder: Path):
    result = chat(folder, ["the " * 600, "the cat"])
    assert result.exit_code == 0, result.output
    assert "exceed the length" in result.stderr and "pass a greater --max-length" in result.stderr
    assert result.stderr.count("first token after") == 1


def test_bench_tokens(folder: Path):
    facts = json.loads(
        run_command("bench-tokens", folder, "--prompt", 20, "--tokens", 3, "--repeat", 1, "--json").stdout
    )
    assert (facts["prompt_tokens"], facts["new_tokens"], facts["plans"]) == (20, 3, 2)
    assert facts["decode_tokens_per_second"] > 0
    assert facts["device_bytes"] > facts["cache_bytes"] > 0
    assert "tokens/s" in run_command("bench-tokens", folder, "--prompt", 3, "--tokens", 2).stdout
    assert "length" in run_command("bench-tokens", folder, "--prompt", 600, status=1).output


@pytest.mark.parametrize("command", ["bench-tokens", "inspect"])
def test_shapes_are_those_of_an_encoder(folder: Path, command: str):
    output = run_command(command, folder, "--shape", "input_ids=1x5", status=1).output
    assert "no encoder whose inputs input_ids have a shape" in output and "leave --shape out" in output


@pytest.mark.slow
def test_a_bundle_that_generates(folder: Path, generator: Generator, tmp_path: Path):
    bundle = tmp_path / "b"
    output = run_command("compile", folder, "-o", bundle, "--generate", "--max-length", 300).stdout
    assert "6 plans" in output
    run_command("verify", bundle)
    words = generator.generate(MESSAGE, max_new_tokens=5, stream=False).text
    assert printable_lines(words) in run_command("generate", bundle, "the cat", "-n", 5).stdout


def test_options_of_bundles_that_generate(folder: Path, tmp_path: Path):
    place = ("-o", tmp_path / "b")
    failed = run_command("compile", folder, *place, "--max-length", 300, status=1)
    assert "--generate" in failed.output
    failed = run_command("compile", folder, *place, "--generate", "--dynamic", "batch=1:2", status=1)
    assert "--dynamic is not for bundles that generate text" in failed.output


@pytest.mark.parametrize("name", ["translator", pytest.param("whisper", marks=pytest.mark.slow)])
def test_folders_with_an_encoder(name: str, request: pytest.FixtureRequest):
    folder = request.getfixturevalue(name)
    facts = json.loads(
        run_command("bench-tokens", folder, "--prompt", 20, "--tokens", 3, "--repeat", 1, "--json").stdout
    )
    assert (facts["prompt_tokens"], facts["new_tokens"]) == (20 if name == "translator" else 1, 3)
    assert facts["decode_tokens_per_second"] > 0 and facts["plans"] >= 3
    described = json.loads(run_command("inspect", folder, "--json").stdout)
    runs = ["the encoder", "first runs of 1 token", "first runs of 16 tokens", "later runs of 1 token"]
    assert sorted(described) == sorted(runs)
    assert all(each["kernels"] for each in described.values())
    assert sorted(json.loads(run_command("inspect", folder, "--web", "--json").stdout)) == sorted(runs)


def test_sizes_of_a_sound_that_no_file_states(whisper: Path, tmp_path: Path):
    encoder = onnx.load(whisper / "onnx" / "encoder_model.onnx")
    for axis, size in enumerate(encoder.graph.input[0].type.tensor_type.shape.dim):
        size.dim_param = f"size{axis}"
    (tmp_path / "onnx").mkdir()
    onnx.save(encoder, tmp_path / "onnx" / "encoder_model.onnx")
    (tmp_path / "onnx" / "decoder_model_merged.onnx").symlink_to(whisper / "onnx" / "decoder_model_merged.onnx")
    (tmp_path / "config.json").write_text((whisper / "config.json").read_text())
    failed = run_command("bench-tokens", tmp_path, "--tokens", 2, status=1).output
    assert "--shape input_features=" in failed


def test_inspect_shows_the_plans_of_a_folder(folder: Path):
    output = run_command("inspect", folder).stdout
    assert [line for line in output.splitlines() if line.startswith("runs of")] == [
        "runs of 1 token:", "runs of 16 tokens:", "runs of 128 tokens:",
    ]  # fmt: skip
    described = json.loads(run_command("inspect", folder, "--json").stdout)
    assert sorted(described) == ["runs of 1 token", "runs of 128 tokens", "runs of 16 tokens"]
    assert "inspect the model" in run_command("inspect", folder, "--show", "wgsl", status=1).output
