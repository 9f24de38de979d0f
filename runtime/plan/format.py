"""The version of the format of plans and bundles.  ``docs/guide/bundles.md`` is the specification."""

from __future__ import annotations

MAJOR, MINOR = 3, 0
FORMAT = f"{MAJOR}.{MINOR}"


def check_format(version: object) -> None:
    """Check that ``version`` has the major version of this package.

    A newer minor version only adds fields, which readers ignore.  Raises :class:`ValueError` for any other version.
    """
    major, _, minor = version.partition(".") if isinstance(version, str) else ("", "", "")
    if not (major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
        raise ValueError(f"its format is {version!r}, which is no version")
    if int(major) != MAJOR:
        remedy = "compile it again" if int(major) < MAJOR else "a newer version of shaderloom reads it"
        raise ValueError(f"its format is version {version}, and this version of shaderloom reads {MAJOR}.x: {remedy}")
