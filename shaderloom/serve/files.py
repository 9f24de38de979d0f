"""Resources of a site: the files of bundles, the browser runner, the page of ``shaderloom serve``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from ..runtime.bundle.files import BundleFiles
from ..runtime.bundle.manifest import Manifest
from .site import Resource
from .starter_page import starter_page

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wgsl": "text/plain; charset=utf-8",
    ".sha256": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}


def content_type(name: str) -> str:
    return CONTENT_TYPES.get(PurePosixPath(name).suffix, "application/octet-stream")


def bundle_resources(bundle: BundleFiles, prefix: str) -> dict[str, Resource]:
    """Return the files of a bundle, zipped or not, under ``prefix`` (``/bundle/``)."""
    return {prefix + name: Resource(content_type(name), partial(bundle.view, name)) for name in bundle.sizes}


def runner_resources() -> dict[str, Resource]:
    """Return the browser runner: ``/shaderloom.js``, ``/generate.js``, and their modules under ``/shaderloom/``."""
    web = files("shaderloom.runtime") / "web"
    return {**_assets(web), **_assets(web / "shaderloom", "/shaderloom/")}


def page_resources() -> dict[str, Resource]:
    """Return the page of ``shaderloom serve``, which reads from ``/bundles.json`` what bundles there are."""
    return _assets(files("shaderloom.serve"))


def bundle_list(bundles: Iterable[tuple[str, str, Manifest]]) -> dict[str, Resource]:
    """Return ``/bundles.json``: the name, the address and the starter page of each bundle."""
    entries = [{"name": name, "url": url, "code": starter_page(manifest, name, url)} for name, url, manifest in bundles]
    return text_resource("bundles.json", json.dumps(entries))


def folder_resources(folder: Path) -> dict[str, Resource]:
    """Return the pages, scripts and styles of a folder."""
    return _assets(folder)


def text_resource(name: str, text: str) -> dict[str, Resource]:
    """Return a resource with generated text."""
    return {f"/{name}": Resource(content_type(name), text.encode)}


def _assets(folder: Traversable, prefix: str = "/") -> dict[str, Resource]:
    return {
        prefix + entry.name: _resource(entry)
        for entry in folder.iterdir()
        if entry.name.endswith((".html", ".js", ".css", ".svg"))
    }


def _resource(file: Traversable) -> Resource:
    return Resource(content_type(file.name), file.read_bytes)
