"""The names of the compiled module."""

from __future__ import annotations

from .onnxruntime_pybind11_state import *  # noqa: F403
from .onnxruntime_pybind11_state import __getattr__ as __getattr__
