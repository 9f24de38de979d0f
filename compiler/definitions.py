"""Definitions by key that modules make when they are imported: to look one up imports its module, not all of them.

Which module defines what is in an index, which the first process makes that imports all of them, and keeps in
``__pycache__``.  It holds for files of the same names, sizes and times, by which Python knows bytecode too.  Where
there is none, because nothing can be written or the package is no folder, the first look-up imports all modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import walk_packages
from types import FrameType
from typing import Any, Generic, TypeVar

from ..runtime.plan import bytecode_file

Key = TypeVar("Key", bound=Hashable)
Definition = TypeVar("Definition")


class Definitions(Generic[Key, Definition]):
    """What the modules of ``package``, and of those in it, define while they are imported, and others add.

    Keys are texts or tuples of texts.  An interrupted import, as by Ctrl-C, is made up for: Python removes a module in
    the middle of which it ended, and what such a module has defined counts for nothing.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._is_complete = False  #: whether all modules have been imported
        self._table: dict[Key, Definition] = {}
        self._makers: dict[Key, dict[str, Any]] = {}  #: the names of the module that made each
        self._settled: dict[Key, Definition] = {}  #: those whose module's import has ended
        self._index: Mapping[Key, str] | None = None

    def add(self, key: Key, definition: Definition) -> bool:
        """Add a definition; return False, with nothing changed, if there is one with this key."""
        maker = _module_being_run()
        if not _module_of(maker).startswith(f"{self._package}."):
            self.find(key)  # one of a module that was not imported yet
        if key in self._table and not _is_removed(self._makers[key]):
            return False
        self._table[key], self._makers[key] = definition, maker
        self._settled.pop(key, None)
        return True

    def find(self, key: Key) -> Definition | None:
        """Return the definition with this key, None if there is none; imports the module that makes it."""
        settled = self._settled.get(key)
        return self._search(key) if settled is None else settled

    def _search(self, key: Key) -> Definition | None:
        if key not in self._table or _is_removed(self._makers[key]):
            module = self._modules().get(key)
            if module is not None:
                import_module(module)
        definition = self._table.get(key)
        if definition is not None and not _is_removed(self._makers[key]) and not _is_running(self._makers[key]):
            self._settled[key] = definition
        return definition

    def present(self) -> Iterable[Definition]:
        """Return those that were made so far."""
        return tuple(self._table.values())

    def all(self) -> Iterable[Definition]:
        """Import every module, and return what they and others define."""
        if not self._is_complete:
            for module in walk_packages(import_module(self._package).__path__, f"{self._package}."):
                import_module(module.name)
            self._is_complete = not any(map(_is_running, self._makers.values()))
        return self._table.values()

    def _modules(self) -> Mapping[Key, str]:
        """Return the module of each definition of the package, as far as they are known."""
        if self._index is not None:
            return self._index
        folder = next(iter(import_module(self._package).__path__))
        path = bytecode_file.path_of(folder, "definitions.modules.index")
        try:
            checksum = repr(sorted(_sources(folder, "")))
        except OSError:  # the package is no folder
            checksum = None
        stored = None if checksum is None else bytecode_file.load(path, checksum)
        if isinstance(stored, dict):
            self._index = stored
            return stored
        self.all()
        names = {key: _module_of(maker) for key, maker in self._makers.items()}
        index = {key: name for key, name in names.items() if name.startswith(f"{self._package}.")}
        if self._is_complete:
            self._index = index
            if checksum is not None:
                bytecode_file.store(path, checksum, index)
        return index


def _sources(folder: str, name: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the size in bytes and the time of every source below ``folder``."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield f"{name}{entry.name}", status.st_size, status.st_mtime_ns
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _sources(entry.path, f"{name}{entry.name}/")


def _module_being_run() -> dict[str, Any]:
    """Return the global names of the innermost module that is being imported."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return {} if frame is None else frame.f_globals


def _module_of(maker: Mapping[str, Any]) -> str:
    return str(maker.get("__name__", ""))


def _is_removed(maker: Mapping[str, Any]) -> bool:
    """Return whether a module was removed again, as one is whose import was interrupted; what ``exec`` runs is none."""
    is_imported = maker.get("__spec__") is not None
    return is_imported and getattr(sys.modules.get(_module_of(maker)), "__dict__", None) is not maker


def _is_running(maker: Mapping[str, Any]) -> bool:
    """Return whether a module is still being imported."""
    return bool(getattr(maker.get("__spec__"), "_initializing", False))
