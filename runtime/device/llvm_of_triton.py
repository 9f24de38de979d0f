"""Keeps the LLVM of PyTorch's compiler and the one of a graphics driver apart, which crash a process otherwise.

Mesa loads its software driver for OpenGL so that the symbols of its LLVM are seen by all libraries of the process
(``RTLD_GLOBAL``).  Triton, which comes with PyTorch's builds for CUDA and is imported by ``torch.compile`` and the
exporters, has another LLVM with the same symbols, and would call Mesa's.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys

_LIBRARY = "triton._C.libtriton"


def load_triton() -> None:
    """Load Triton's library, if the program has imported PyTorch and Triton is installed: before the driver's LLVM,
    or else bound to its own.

    A program that has not imported PyTorch pays nothing.  Has no effect on systems other than Linux.
    """
    if sys.platform != "linux" or "torch" not in sys.modules or _LIBRARY in sys.modules:
        return
    flags = sys.getdlopenflags()
    try:
        if hasattr(ctypes.CDLL(None), "LLVMContextCreate"):
            sys.setdlopenflags(flags | os.RTLD_DEEPBIND)
        importlib.import_module(_LIBRARY)
    except (ImportError, AttributeError):  # not installed, or torch is still being imported
        pass
    finally:
        sys.setdlopenflags(flags)
