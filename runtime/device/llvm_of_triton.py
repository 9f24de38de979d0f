"""Keeps the LLVM of PyTorch's compiler and the one of a graphics driver apart, which crash a process otherwise.

Mesa loads its software drivers so that the symbols of their LLVM are seen by all libraries of the process
(``RTLD_GLOBAL``).  Triton, which comes with PyTorch's builds for CUDA and is imported by ``torch.compile`` and the
exporters, has another LLVM with the same symbols, and would call Mesa's if it came later.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

_LIBRARY = "triton._C.libtriton"


def keep_triton_apart() -> None:
    """Bind Triton's library to its own LLVM whenever the process imports it, now or later.

    Has no effect on systems other than Linux, and the second time.
    """
    if sys.platform == "linux" and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Triton's library alone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _LIBRARY:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads a module as ``loader`` does, with its library bound to itself first."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        with _bound_to_itself():
            return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with _bound_to_itself():
            self._loader.exec_module(module)


@contextmanager
def _bound_to_itself() -> Iterator[None]:
    """Load libraries with their own symbols first, if the process has those of an LLVM."""
    flags = sys.getdlopenflags()
    if hasattr(ctypes.CDLL(None), "LLVMContextCreate"):
        sys.setdlopenflags(flags | os.RTLD_DEEPBIND)
    try:
        yield
    finally:
        sys.setdlopenflags(flags)
