"""The examples of docs/guide/pytorch.md, run one after another as a reader does.

Covers: shaderloom/torch.
"""

import importlib.metadata
import re
from pathlib import Path

import pytest

import shaderloom

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "pytorch.md"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:the only adapter is")]


def test_the_examples_of_the_page(device, tmp_path, monkeypatch):
    if not importlib.metadata.entry_points(group="torch_dynamo_backends", name="shaderloom"):
        pytest.skip("the package is not installed here, so that the backend has no name")
    monkeypatch.setenv("HOME", str(tmp_path))
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names = {}
    for number, block in enumerate(blocks):
        # dynamo reads the source of what it traces
        file = tmp_path / f"block_{number}.py"
        file.write_text(block, encoding="utf-8")
        exec(compile(block, file, "exec"), names)
    assert len(blocks) == 3
    assert isinstance(names["state"], shaderloom.Tensor)
    expected = 0.0
    for _ in range(3):
        expected = 0.9 * expected + names["token"]
    torch.testing.assert_close(torch.from_numpy(names["state"].numpy()), expected)
    torch.testing.assert_close(torch.from_numpy(names["total"].numpy()), expected.sum())
    assert names["result"].shape == (2, 10)
