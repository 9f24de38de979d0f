"""How much random tests try."""

from hypothesis import settings

#: Whether this is a run of ``./dev soak``, in which they go on for long
SOAK = settings.default is settings.get_profile("soak")
