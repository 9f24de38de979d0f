"""The version of the compiler as keys of the cache name it: the digest of its sources."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from importlib.resources import files
from importlib.util import find_spec

#: Packages whose sources determine what the compiler writes
_SOURCES = ("shaderloom.compiler", "shaderloom.templates", "shaderloom.runtime")

#: Installed packages whose version determines it, too
_DEPENDENCIES = ("onnx", "jinja2", "numpy")

_METADATA = ".dist-info"


@functools.cache
def compiler_version() -> str:
    """Return the sha256 of all sources and templates of the compiler and the versions of its dependencies."""
    digest = hashlib.sha256()
    for package in _SOURCES:
        for name, path in _sources(str(files(package)), package):
            with open(path, "rb", buffering=0) as file:
                text = file.read()
            digest.update(f"{name}\0{len(text)}\0".encode() + text)
    for package in _DEPENDENCIES:
        digest.update(f"{package} {installed_version(package)}\0".encode())
    return digest.hexdigest()


def _sources(folder: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield name and path of every source and template below ``folder``, in an order that any machine repeats."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _sources(entry.path, f"{name}/{entry.name}")
            elif entry.name.endswith((".py", ".j2")):
                yield f"{name}/{entry.name}", entry.path


def installed_version(package: str) -> str:
    """Return the version of an installed package, from the name of the folder of its metadata,
    ``NAME-VERSION.dist-info``, where there is one beside it.

    ``importlib.metadata`` answers too, and imports a parser of mail for it.
    """
    spec = find_spec(package)
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        with os.scandir(os.path.dirname(folder)) as entries:
            names = [entry.name.removesuffix(_METADATA) for entry in entries if entry.name.endswith(_METADATA)]
        versions = [version for name, _, version in (name.partition("-") for name in names) if name.lower() == package]
        if len(versions) == 1:
            return versions[0]
    import importlib.metadata

    return importlib.metadata.version(package)
