"""The logger ``shaderloom``.  Covers: shaderloom/log.py."""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from typer.testing import CliRunner

from shaderloom import InferenceSession
from shaderloom.cli import app
from shaderloom.notices import forget, notify

ROOT = Path(__file__).resolve().parents[2]
RELU = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }'
)


def messages(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == name]


@pytest.mark.filterwarnings("ignore")
def test_what_is_compiled_and_cached_is_logged(device, tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "relu.onnx"
    onnx.save(RELU, path)
    feeds = {"x": np.ones((2, 3), np.float32)}
    with caplog.at_level(logging.DEBUG, "shaderloom"):
        for _ in range(2):
            with InferenceSession(path, device=device, cache=tmp_path / "cache") as session:
                session.run(None, feeds)
    compiled, read = messages(caplog, "shaderloom.compile")
    assert "1 kernel, compiled in" in compiled and "read from the disk" in read
    cached = messages(caplog, "shaderloom.cache")
    assert any("no plan" in message for message in cached) and any("used the" in message for message in cached)


def test_notices_are_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    forget()
    with caplog.at_level(logging.INFO, "shaderloom"):
        with pytest.warns(UserWarning, match="said once"):
            notify("said once", once="test log")
        notify("said once", once="test log")
    assert messages(caplog, "shaderloom.notices") == ["said once"]


def test_a_notice_of_a_thread_is_that_of_the_package() -> None:
    def tell() -> None:
        thread = threading.Thread(target=notify, args=("of a thread",))
        thread.start()
        thread.join()

    with pytest.warns(UserWarning, match="of a thread") as told:
        tell()
    assert [each.filename for each in told] == ["shaderloom"]


def test_nothing_is_printed_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    import shaderloom.log

    shaderloom.log.COMPILE.error("not for the terminal")
    assert "not for the terminal" not in "".join(capfd.readouterr())


def test_the_guide_lists_every_logger() -> None:
    import shaderloom.runtime.device.opening  # noqa: F401  # defines the logger of devices

    text = (ROOT / "docs" / "guide" / "logging.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(shaderloom\.\w+)`", text, re.MULTILINE))
    assert listed == {name for name in logging.root.manager.loggerDict if name.startswith("shaderloom.")}


def test_the_command_line_prints_the_log_beside_json(device, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "relu.onnx"
    onnx.save(RELU, path)
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    before = list(logging.getLogger("shaderloom").handlers)
    result = CliRunner().invoke(app, ["--log", "info", "run", str(path), "--json", "--no-cache"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["calls"] == 1
    assert re.search(
        r"^shaderloom\.compile: compiling for .*: 1 kernel, compiled in \d+ ms$", result.stderr, re.MULTILINE
    )
    assert logging.getLogger("shaderloom").handlers == before, "a command leaves the logger as it was"
    assert CliRunner().invoke(app, ["--log", "loud", "devices"]).exit_code == 2
