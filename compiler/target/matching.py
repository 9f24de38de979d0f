"""Matching of devices to families: the only module that reads names and kinds of adapters."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.plan.device_profile import WEB, DeviceProfile
from .families import FAMILIES
from .target import Target


def target_of(profile: DeviceProfile) -> Target:
    """Return the target of a device: the first family of its kind that names the adapter or the driver, else the
    generic one.  Equal profiles have equal targets."""
    names = f"{profile.adapter} {profile.driver}".lower()
    family = next(
        family
        for family in FAMILIES
        if family.is_software == profile.is_software
        and (not family.adapters or any(text in names for text in family.adapters))
    )
    return replace(family, profile=profile)


#: What plans for no device in particular are compiled for
WEB_TARGET = target_of(WEB)
