"""SwiftShader, the software driver that Chromium ships.

Its subgroups have four threads (SSE), measured as described in docs/performance.md.  What is not stated here is taken
over from lavapipe: it is unmeasured.
"""

from __future__ import annotations

from dataclasses import replace

from ..target import BroadcastCosts, DepthwiseCosts
from . import lavapipe

TARGET = replace(
    lavapipe.TARGET,
    inlines_uniforms=False,
    converts_halves=False,  # a dozen operations each
    transforms_bytes=True,
    by_bits=("pack_float16", "round_float16"),
    name="SwiftShader",
    adapters=("swiftshader",),
    repaid_range_runs=600,
    costs=replace(
        lavapipe.COSTS,
        broadcast=BroadcastCosts(load=84.0, multiply=7.4, compile_load=10e6, compile_multiply=6e6, accumulators=64),
        # two subgroups; a store with the epilogue that it repeats
        depthwise=DepthwiseCosts(
            load=150.0, store=400.0, multiply=15.0, compile_load=1.5e6, compile_multiply=1e6, loads=80
        ),
    ),
)
