"""The version of the compiler as keys of the cache name it: the digest of its sources."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.resources
from collections.abc import Iterator
from typing import Any

#: Packages whose sources determine what the compiler writes
_SOURCES = ("shaderloom.compiler", "shaderloom.templates", "shaderloom.runtime")

#: Installed distributions whose version determines it, too
_DISTRIBUTIONS = ("onnx", "jinja2", "numpy")


@functools.cache
def compiler_version() -> str:
    """Return the sha256 of all sources and templates of the compiler and the versions of its dependencies."""
    digest = hashlib.sha256()
    for package in _SOURCES:
        for name, text in _texts(importlib.resources.files(package), package):
            digest.update(f"{name}\0{len(text)}\0".encode() + text)
    for distribution in _DISTRIBUTIONS:
        digest.update(f"{distribution} {importlib.metadata.version(distribution)}\0".encode())
    return digest.hexdigest()


def _texts(folder: Any, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _texts(entry, f"{name}/{entry.name}")
        elif entry.name.endswith((".py", ".j2")):
            yield f"{name}/{entry.name}", entry.read_bytes()
