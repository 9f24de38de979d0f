"""The classes of sessions and of what they take."""

from __future__ import annotations

from shaderloom.as_onnxruntime.names import InferenceSession as InferenceSession
from shaderloom.as_onnxruntime.names import IOBinding as IOBinding
from shaderloom.as_onnxruntime.names import OrtValue as OrtValue

from .onnxruntime_pybind11_state import __getattr__ as __getattr__

Session = InferenceSession
