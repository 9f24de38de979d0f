"""A folder that any server of files can host: a bundle, the browser runner, and a page that uses them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from ..runtime.bundle.manifest import Manifest
from ..runtime.plan.errors import unwritable
from .files import runner_resources
from .starter_page import starter_page


def write_page(folder: Path, manifest: Manifest, bundle: str) -> bool:
    """Write the page and the runner into ``folder``, in which the bundle is the folder ``bundle``.

    An ``index.html`` that is there already stays.  Returns whether there was none; raises :class:`InputError` where the
    folder cannot be written.
    """
    page, web = folder / "index.html", files("shaderloom.runtime") / "web"
    try:
        (folder / "shaderloom").mkdir(parents=True, exist_ok=True)
        for path, resource in runner_resources().items():
            (folder / path.removeprefix("/")).write_bytes(resource.read())
        for name in ("shaderloom.d.ts", "generate.d.ts"):
            (folder / name).write_bytes((web / name).read_bytes())
        if page.exists():
            return False
        page.write_text(starter_page(manifest, bundle.removesuffix(".shaderbundle"), f"{bundle}/"), encoding="utf-8")
    except OSError as error:
        raise unwritable(folder, error) from None
    return True
