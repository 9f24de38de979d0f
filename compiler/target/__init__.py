"""What the compiler goes by on a device: limits, cost constants and quirks of drivers, as data by family of devices."""

from __future__ import annotations

from .families import FAMILIES, PORTABLE_LOOP_TRIPS
from .matching import WEB_TARGET, target_of
from .target import (
    AttentionCosts,
    BroadcastCosts,
    DepthwiseCosts,
    RegisterCosts,
    SplitCosts,
    Target,
    ThreadCosts,
    WinogradCosts,
    WorkgroupCosts,
)

__all__ = [
    "FAMILIES",
    "PORTABLE_LOOP_TRIPS",
    "WEB_TARGET",
    "AttentionCosts",
    "BroadcastCosts",
    "DepthwiseCosts",
    "RegisterCosts",
    "SplitCosts",
    "Target",
    "ThreadCosts",
    "WinogradCosts",
    "WorkgroupCosts",
    "target_of",
]
