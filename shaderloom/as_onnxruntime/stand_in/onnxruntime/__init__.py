"""Shaderloom under the name of onnxruntime, for a program that was written for onnxruntime."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("shaderloom") is None:  # an interpreter that has this folder on its path alone
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from shaderloom.as_onnxruntime.names import *  # noqa: F403
from shaderloom.as_onnxruntime.names import absent, find_tools, get_version_string
from shaderloom.as_onnxruntime.policy import say
from shaderloom.notices import show_by

find_tools()
show_by(say)

from . import capi as capi  # noqa: E402

__author__ = "The Shaderloom authors"
__version__ = version = get_version_string()


def __getattr__(name: str) -> object:
    raise absent(__name__, name)
