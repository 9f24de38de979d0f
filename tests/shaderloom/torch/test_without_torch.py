"""What holds where PyTorch is not installed.

Covers: shaderloom/torch/from_torch.py.
"""

import subprocess
import sys

import pytest

import shaderloom

from ...support.patience import PATIENCE


def test_a_missing_pytorch_is_an_error_that_says_what_to_install(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("shaderloom.torch.")]:
        if module != "shaderloom.torch.from_torch":
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        shaderloom.UnsupportedError, match=r"from_torch needs PyTorch.*pip install 'shaderloom\[torch\]'"
    ):
        shaderloom.from_torch(None)


def test_the_package_does_not_import_pytorch():
    code = (
        "import sys, shaderloom; shaderloom.from_torch, shaderloom.InferenceSession; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
