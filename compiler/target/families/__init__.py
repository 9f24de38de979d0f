"""The families of devices, a file each; those of one adapter or driver before the generic ones."""

from __future__ import annotations

from . import generic_gpu, generic_software, lavapipe, nvidia, swiftshader

#: In the order in which they are tried; the last ones take every device
FAMILIES = (lavapipe.TARGET, swiftshader.TARGET, nvidia.TARGET, generic_software.TARGET, generic_gpu.TARGET)

#: Trips of the loops of a thread that every device makes
PORTABLE_LOOP_TRIPS = min(family.max_loop_trips for family in FAMILIES if family.max_loop_trips is not None)
