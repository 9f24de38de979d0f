"""Modules that programs import from inside onnxruntime, for its errors above all."""

from __future__ import annotations

from . import _pybind_state as _pybind_state
from . import onnxruntime_inference_collection as onnxruntime_inference_collection
from . import onnxruntime_pybind11_state as onnxruntime_pybind11_state
from . import onnxruntime_validation as onnxruntime_validation
