"""Unmeasured software drivers, and the kernels for software drivers in bundles: lavapipe's numbers."""

from __future__ import annotations

from dataclasses import replace

from . import lavapipe

TARGET = replace(lavapipe.TARGET, name="generic software driver", adapters=(), inlines_uniforms=False)
