"""Unmeasured software drivers, and the kernels for software drivers in bundles, which lavapipe runs, too.

A page compiles a bundle's kernels each time that it is opened and rarely makes hundreds of runs, so less time of runs
repays compiling there than in a process with a driver's cache (docs/performance.md).
"""

from __future__ import annotations

from dataclasses import replace

from . import lavapipe

TARGET = replace(
    lavapipe.TARGET,
    name="generic software driver",
    adapters=(),
    repaid_runs=75,
    repaid_range_runs=75,
    transforms_bytes=True,  # as SwiftShader, which pages have
)
