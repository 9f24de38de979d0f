"""The version of the format of plans and bundles.  ``docs/guide/bundles.md`` is the specification."""

from __future__ import annotations

MAJOR, MINOR = 3, 0
FORMAT = f"{MAJOR}.{MINOR}"


def format_problem(version: object) -> str:
    """Return why a version of the format is not read, such as "is '3', which is no version", or "".

    What has the major version of this package is read: a newer minor version only adds fields, which readers ignore.
    """
    major, _, minor = version.partition(".") if isinstance(version, str) else ("", "", "")
    if not (major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
        return f"is {version!r}, which is no version"
    digits, own = major.lstrip("0"), str(MAJOR)  # there may be more than a Python integer takes
    if digits == own:
        return ""
    is_older = (len(digits), digits) < (len(own), own)
    remedy = "compile it again" if is_older else "a newer version of shaderloom reads it"
    return f"is version {version}, and this version of shaderloom reads {MAJOR}.x: {remedy}"
