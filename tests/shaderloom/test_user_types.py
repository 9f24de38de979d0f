"""Types as a user's program sees them, by ``mypy --strict``, and what sessions say of themselves.

Covers: shaderloom/py.typed, shaderloom/api/values.py.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import shaderloom

from ..support.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = '''
"""Functions around a session, as a program under --strict writes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import shaderloom
from shaderloom import InputValue, OutputValue, Session


def names(session: Session) -> list[str]:
    return [str(port.name) for port in session.get_inputs()]


def classify(session: shaderloom.InferenceSession, picture: npt.NDArray[np.float32]) -> int:
    (scores,) = session.run(None, {"picture": picture})
    return int(scores.argmax())


async def both(session: shaderloom.InferenceSession, feeds: dict[str, InputValue]) -> list[OutputValue]:
    first = session.run_async(None, feeds)
    return [*await session.run_async(None, feeds), *first.result()]


def on_device(session: shaderloom.InferenceSession, x: shaderloom.Tensor) -> npt.NDArray[np.float32]:
    (y,) = session.run(["y"], {"x": x}, outputs={"y": "gpu-buffer"})
    assert isinstance(y, shaderloom.Tensor)
    return y.numpy()


def report(results: list[OutputValue], user_data: object, error: str) -> None:
    print(len(results), user_data, error)


def main() -> None:
    options = shaderloom.SessionOptions()
    with shaderloom.InferenceSession("model.onnx", options, preferred_output_location={"y": "cpu"}) as session:
        session.run_async(["y"], {"x": np.zeros((2, 2), np.float32), "flag": True, "sizes": [1, 2]}, report)
        value = shaderloom.OrtValue.ortvalue_from_numpy(np.zeros(3))
        session.run(None, {"x": value, "z": shaderloom.Tensor.from_numpy([1.0])})
        ports: list[shaderloom.NodeArg] = session.get_inputs()
        print(session, names(session), [port.shape for port in ports], session.device.name)
'''

WRONG = """
import shaderloom

session = shaderloom.InferenceSession("model.onnx")
session.run(None, {"x": object()})
session.run(None, [1.0])
session.run("y", {"x": 1.0}).shape
session.run_async(None, {"x": 1.0}, lambda results: None)
reveal_type(session.run(None, {}))
reveal_type(session.run_async(None, {}))
reveal_type(session.run_async(None, {}).result()[0])
"""


def check(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run mypy as a user does, in a folder of the user's; errors in this package are not the program's."""
    (folder / "program.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", "program.py"]
    environment = {"MYPYPATH": str(ROOT), "PATH": "", "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


@pytest.mark.slow
def test_a_strict_program_has_no_errors(tmp_path):
    checked = check(PROGRAM, tmp_path)
    assert (checked.stdout, checked.returncode) == ("", 0)


@pytest.mark.slow
def test_mistakes_are_errors_and_results_have_types(tmp_path):
    lines = check(WRONG, tmp_path).stdout.splitlines()
    errors = re.findall(r"^program\.py:(\d+): error: .*\[([\w-]+)\]$", "\n".join(lines), re.MULTILINE)
    assert {("5", "dict-item"), ("6", "arg-type"), ("7", "attr-defined"), ("8", "arg-type")} <= set(errors)
    revealed = [re.findall(r'Revealed type is "(.*)"', line) for line in lines if "Revealed" in line]
    assert "ndarray" in revealed[0][0]
    assert revealed[1] == ["shaderloom.api.async_run.AsyncRun"]
    assert "ndarray" in revealed[2][0]


def test_protocols_hold_for_what_sessions_take():
    for value in (np.zeros(2), shaderloom.OrtValue.ortvalue_from_numpy(np.zeros(2))):
        assert isinstance(value, shaderloom.SupportsArray)
        assert isinstance(value, shaderloom.SupportsDLPack)
    assert not isinstance(object(), shaderloom.SupportsArray | shaderloom.SupportsDLPack)


MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2, n] x, float[2, 2] w) => (float[2, n] y, float[2, n] z) { a = MatMul(w, x) y = Relu(a) z = Softmax(y) }
"""


def test_a_notebook_shows_ports_and_the_graph_that_ran(device):
    model = onnx.parser.parse_model(MODEL)
    model.graph.node[1].name = "<b>&'"
    session = shaderloom.InferenceSession(model.SerializeToString(), device=device, cache=False)
    before = session._repr_html_()
    assert "x: float32[2, n]" in before and "after the first run" in before and "<svg" not in before
    session.run(None, {"x": np.ones((2, 3), np.float32), "w": np.ones((2, 2), np.float32)})
    html = session._repr_html_()
    calls = len(session.plan_for({"x": np.ones((2, 3), np.float32), "w": np.ones((2, 2), np.float32)}).calls)
    assert html.count("<rect") == calls + 2 + 2
    assert html.count("<path") >= calls
    assert "&lt;b&gt;&amp;&#x27;" in html and "<b>" not in html
    assert f"1 plan, {session.device_bytes:,} bytes" in html
    session.close()
    assert "closed" in session._repr_html_()


def test_a_notebook_leaves_out_large_graphs(device, monkeypatch):
    from shaderloom.session import notebook

    monkeypatch.setattr(notebook, "LARGEST_GRAPH", 0)
    with shaderloom.InferenceSession(onnx.parser.parse_model(MODEL), device=device, cache=False) as session:
        session.run(None, {"x": np.ones((2, 3), np.float32), "w": np.ones((2, 2), np.float32)})
        assert "shaderloom inspect --html draws them" in session._repr_html_()


def test_a_session_of_the_host_has_ports_in_a_notebook():
    with shaderloom.InferenceSession(onnx.parser.parse_model(MODEL), providers=["cpu"]) as session:
        assert "on the host" in session._repr_html_() and "y: float32[2, n]" in session._repr_html_()
