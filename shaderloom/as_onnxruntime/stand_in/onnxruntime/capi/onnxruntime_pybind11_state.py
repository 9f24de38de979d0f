"""In place of onnxruntime's compiled module: the classes, the functions, and the errors, which are bases of ours."""

from __future__ import annotations

from shaderloom.as_onnxruntime.names import *  # noqa: F403
from shaderloom.as_onnxruntime.names import SessionOptions, absent
from shaderloom.runtime.plan.onnxruntime_errors import *  # noqa: F403


def get_default_session_options() -> SessionOptions:
    """Return options with their defaults."""
    return SessionOptions()


def __getattr__(name: str) -> object:
    raise absent(__name__, name)
