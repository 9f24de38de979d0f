"""Triton's library, imported before a graphics driver or after it, is bound to its own LLVM.

Covers: shaderloom/runtime/device/llvm_of_triton.py.
"""

import importlib
import os
import sys
import types

import pytest

from shaderloom.runtime.device import adapters, llvm_of_triton

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Mesa's drivers and Triton are on Linux")


@pytest.fixture
def triton(tmp_path, monkeypatch):
    """A package in Triton's place that notes how it was loaded."""
    folder = tmp_path / "triton" / "_C"
    folder.mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "libtriton.py").write_text("import sys\nflags = sys.getdlopenflags()\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    importlib.invalidate_caches()
    yield
    for name in ("triton", "triton._C", "triton._C.libtriton"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("is_global", [False, True])
def test_triton_is_bound_to_its_own_llvm_if_it_comes_later(triton, monkeypatch, is_global):
    llvm_of_triton.keep_triton_apart()
    symbols = types.SimpleNamespace(**({"LLVMContextCreate": None} if is_global else {}))
    monkeypatch.setattr(llvm_of_triton.ctypes, "CDLL", lambda name: symbols)
    before = sys.getdlopenflags()
    loaded = importlib.import_module("triton._C.libtriton")
    assert loaded.flags == before | (os.RTLD_DEEPBIND if is_global else 0)
    assert sys.getdlopenflags() == before


def test_a_device_keeps_triton_apart_and_does_not_load_it(triton, monkeypatch, device):
    monkeypatch.setattr(sys, "meta_path", [each for each in sys.meta_path if "triton" not in type(each).__module__])
    finders = len(sys.meta_path)
    for _ in range(2):
        adapters.enumerate_adapters()
    assert len(sys.meta_path) == finders + 1
    assert "triton" not in sys.modules


def test_a_process_without_triton_is_told_that_it_is_missing(triton, monkeypatch):
    llvm_of_triton.keep_triton_apart()
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ModuleNotFoundError, match="triton"):
        importlib.import_module("triton._C.libtriton")
