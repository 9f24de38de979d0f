"""Unmeasured software drivers, and the kernels for software drivers in bundles, which lavapipe runs, too."""

from __future__ import annotations

from dataclasses import replace

from . import lavapipe

TARGET = replace(lavapipe.TARGET, name="generic software driver", adapters=())
