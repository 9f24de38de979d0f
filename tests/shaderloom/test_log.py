"""The logger ``shaderloom``.  Covers: shaderloom/log.py."""

from __future__ import annotations

import logging

import numpy as np
import onnx.parser
import pytest

from shaderloom import InferenceSession
from shaderloom.notices import forget, notify


def messages(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == name]


@pytest.mark.filterwarnings("ignore")
def test_what_is_compiled_and_cached_is_logged(device, tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }'
    )
    path = tmp_path / "relu.onnx"
    onnx.save(model, path)
    feeds = {"x": np.ones((2, 3), np.float32)}
    with caplog.at_level(logging.DEBUG, "shaderloom"):
        for _ in range(2):
            with InferenceSession(path, device=device, cache=tmp_path / "cache") as session:
                session.run(None, feeds)
    compiled, read = messages(caplog, "shaderloom.compile")
    assert "1 kernels, compiled in" in compiled and "read from the disk" in read
    cached = messages(caplog, "shaderloom.cache")
    assert any("no plan" in message for message in cached) and any("used the" in message for message in cached)


def test_notices_are_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    forget()
    with caplog.at_level(logging.INFO, "shaderloom"):
        with pytest.warns(UserWarning, match="said once"):
            notify("said once", once="test log")
        notify("said once", once="test log")
    assert messages(caplog, "shaderloom.notices") == ["said once"]


def test_nothing_is_printed_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    import shaderloom.log

    shaderloom.log.COMPILE.error("not for the terminal")
    assert "not for the terminal" not in "".join(capfd.readouterr())
