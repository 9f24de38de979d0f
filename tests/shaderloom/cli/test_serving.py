"""The command that serves models.  Covers: shaderloom/cli/serving, shaderloom/cli/serve."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from shaderloom.generate.generator import Generator

from ...support.command_line import run_command
from ...support.patience import PATIENCE


@pytest.mark.slow
def test_the_command_answers_until_it_is_interrupted(
    folder: Path, generator: Generator, device: Any, interrupts: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    monkeypatch.setenv("SHADERLOOM_API_KEY", "secret")
    command = [sys.executable, "-W", "ignore", "-m", "shaderloom", "serve", str(folder), "--api", "openai"]
    command += ["--port", "0", "--name", "small", "--slots", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"small is at (http://127\.0\.0\.1:\d+)/v1 \(Ctrl-C ends\)\n", line)
        assert found, line + process.stderr.read()
        body = {"model": "small", "prompt": "the cat", "max_tokens": 5, "temperature": 0}
        url = f"{found[1]}/v1/completions"
        assert httpx.post(url, json=body, timeout=PATIENCE).status_code == 401
        answer = httpx.post(url, json=body, headers={"Authorization": "Bearer secret"}, timeout=PATIENCE)
        wanted = generator.generate("the cat", max_new_tokens=5, stream=False)
        assert answer.json()["choices"][0]["text"] == wanted.text
        process.send_signal(2)
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


def test_options_that_do_not_fit_are_refused(folder: Path, tmp_path: Path):
    assert "--api openai" in run_command("serve", folder, "--slots", 3, status=1).output
    assert "one model" in run_command("serve", folder, folder, "--api", "openai", status=1).output
    assert "--max-body" in run_command("serve", folder, "--api", "openai", "--max-body", "much", status=1).output
    assert "genai_config.json" in run_command("serve", tmp_path, "--api", "openai", status=1).output
