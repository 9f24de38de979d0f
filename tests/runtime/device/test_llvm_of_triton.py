"""Triton is loaded before a graphics driver where the program has PyTorch, and nowhere else.

Covers: shaderloom/runtime/device/llvm_of_triton.py.
"""

import importlib
import os
import sys
import types

import pytest

from shaderloom.runtime.device import llvm_of_triton

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Mesa's OpenGL driver and Triton are on Linux")


@pytest.fixture
def triton(tmp_path, monkeypatch):
    """A package in Triton's place that notes how it was loaded."""
    folder = tmp_path / "triton" / "_C"
    folder.mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "libtriton.py").write_text("import sys\nflags = sys.getdlopenflags()\n")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("triton", "torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield
    for name in ("triton", "triton._C", "triton._C.libtriton"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("is_global", [False, True])
def test_triton_is_bound_to_its_own_llvm(triton, monkeypatch, is_global):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    symbols = types.SimpleNamespace(**({"LLVMContextCreate": None} if is_global else {}))
    monkeypatch.setattr(llvm_of_triton.ctypes, "CDLL", lambda name: symbols)
    before = sys.getdlopenflags()
    llvm_of_triton.load_triton()
    assert sys.modules["triton._C.libtriton"].flags == before | (os.RTLD_DEEPBIND if is_global else 0)
    assert sys.getdlopenflags() == before


def test_a_program_without_pytorch_does_not_load_triton(triton):
    llvm_of_triton.load_triton()
    assert "triton" not in sys.modules


def test_pytorch_without_triton_is_fine(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    llvm_of_triton.load_triton()
