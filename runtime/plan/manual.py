"""Pages of the documentation, as texts of errors name them: a wheel does not hold them."""

from __future__ import annotations

from pathlib import Path

#: In a checkout the folder that has ``docs``; of an installed package one without it
_ROOT = Path(__file__).resolve().parents[2]


def manual_page(name: str) -> str:
    """Return where a reader finds a page such as ``guide/shapes.md``.

    That is its path in a checkout; of an installed package the address that a release has in its metadata, and where
    the package was built without one, the name of the page.
    """
    if (_ROOT / "docs" / name).is_file():
        return f"docs/{name}"
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        addresses = metadata("shaderloom").get_all("Project-URL") or []
    except PackageNotFoundError:  # packages of a folder on the path
        addresses = []
    for entry in addresses:
        label, _, address = entry.partition(", ")
        if label == "Documentation":
            return f"{address}/{name}"
    return f"the page {name.removesuffix('.md')} of the documentation"
