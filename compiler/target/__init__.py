"""Describe devices to the compiler: limits, cost constants and driver quirks, as data by device family."""

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
