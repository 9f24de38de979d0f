"""Unmeasured GPUs, and plans for no device in particular: the numbers of NVIDIA's."""

from __future__ import annotations

from dataclasses import replace

from . import nvidia

TARGET = replace(nvidia.TARGET, name="generic GPU", adapters=(), multiplies_bytes=False, neighbours=0)
