"""The real onnxruntime, which serves the provider cpu, also where something else has its name.

A program may have this package under the name ``onnxruntime``: by :mod:`..as_onnxruntime`, by an entry in
``sys.modules``, or by a file of its own.  A session on the cpu that imported that name would open a session of this
package, and so on without end.  So the real package is known by what no stand-in has, its compiled module, and is then
loaded beside the other under the name :data:`ALIAS`; the modules of it that import ``onnxruntime`` get one another.
"""

from __future__ import annotations

import builtins
import importlib.util
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

NAME = "onnxruntime"
#: the real package's name beside a stand-in
ALIAS = "_real_onnxruntime"
#: the module with InferenceSession, and as ``C`` the compiled module
_COLLECTION = ".capi.onnxruntime_inference_collection"
_COMPILED = "onnxruntime_pybind11_state"
_lock = threading.Lock()


def is_installed() -> bool:
    """Return whether the real onnxruntime is loaded or on the path; it is not imported."""
    return _loaded() is not None or (not _is_forbidden() and _folder() is not None)


def real_onnxruntime() -> Any:
    """Return onnxruntime's module of ``InferenceSession``, with its other classes in ``C``; import it if need be.

    Raises :class:`ImportError` where it is not installed or cannot be loaded.
    """
    with _lock:
        module = _loaded()
        if module is not None:
            return module
        folder = _folder()
        if folder is None or _is_forbidden():
            raise ModuleNotFoundError("onnxruntime is not installed", name=NAME)
        if NAME not in sys.modules and _comes_first(folder):
            importlib.import_module(NAME + _COLLECTION)
        else:
            _load_beside(folder)
        module = _loaded()
        if module is None:
            raise ImportError(f"the package in '{folder}' is not onnxruntime", name=NAME)
        return module


def import_beside(module: str) -> ModuleType:
    """Return a module of the real package, such as ``quantization.quantize``, which sees that package alone.

    Raises :class:`ImportError` where the package is not installed, or the module cannot be loaded.
    """
    real_onnxruntime()
    with _lock:
        folder = _folder()
        if folder is not None:
            _find_beside(folder)
    return importlib.import_module(f"{ALIAS}.{module}")


def move_aside() -> bool:
    """Give a real onnxruntime that is loaded the name :data:`ALIAS`, so that another can have its own; return whether
    one was loaded.
    """
    is_real = sys.modules.get(NAME + _COLLECTION) is not None and _loaded() is sys.modules[NAME + _COLLECTION]
    for name in [name for name in sys.modules if name == NAME or name.startswith(NAME + ".")]:
        module = sys.modules.pop(name)
        if is_real:
            sys.modules[ALIAS + name.removeprefix(NAME)] = module
    return is_real


def _loaded() -> ModuleType | None:
    """Return the module of :func:`real_onnxruntime` if it is loaded."""
    for package in (ALIAS, NAME):
        module = sys.modules.get(package + _COLLECTION)
        kind = getattr(module, "InferenceSession", None)
        if module is not None and getattr(kind, "__module__", "").endswith(_COLLECTION) and hasattr(module, "C"):
            return module
    return None


def _folder() -> Path | None:
    """Return the first folder on the path that has the compiled module of onnxruntime."""
    for entry in sys.path:
        folder = Path(entry or ".") / NAME
        try:
            names = [path.name for path in (folder / "capi").iterdir()]
        except OSError:
            continue
        if any(name.startswith(_COMPILED) and name.endswith(tuple(EXTENSION_SUFFIXES)) for name in names):
            return folder
    return None


def _is_forbidden() -> bool:
    """Return whether the program forbids to import it: by None as its module, or by a finder that refuses."""
    try:
        return importlib.util.find_spec(NAME) is None and NAME in sys.modules
    except ImportError:
        return True
    except ValueError:  # a stand-in without a specification
        return False


def _comes_first(folder: Path) -> bool:
    """Return whether an import of ``onnxruntime`` would load the package in ``folder``."""
    spec = importlib.util.find_spec(NAME)
    return spec is not None and folder.resolve() in [
        Path(each).resolve() for each in spec.submodule_search_locations or ()
    ]


def _find_beside(folder: Path) -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(folder))


def _load_beside(folder: Path) -> None:
    """Import the package in ``folder`` as :data:`ALIAS`."""
    _find_beside(folder)
    importlib.import_module(ALIAS + _COLLECTION)


def _import_beside(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import as the statement does, with :data:`ALIAS` for ``onnxruntime``."""
    if level == 0 and (name == NAME or name.startswith(NAME + ".")):
        name = ALIAS + name.removeprefix(NAME)
    return builtins.__import__(name, globals, locals, fromlist or (), level)


class _Loader(SourceFileLoader):
    """Runs a module with built-in names of its own, among which is the function behind the import statement."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_beside}
        super().exec_module(module)


class _Finder:
    """Finds the modules of the package in a folder under :data:`ALIAS`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name == ALIAS:
            file = str(self._folder / "__init__.py")
            locations = [str(self._folder)]
            return spec_from_file_location(name, file, loader=_Loader(name, file), submodule_search_locations=locations)
        if not name.startswith(ALIAS + "."):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
            return spec
        return spec_from_file_location(
            name,
            spec.origin,
            loader=_Loader(name, spec.origin),
            submodule_search_locations=spec.submodule_search_locations,
        )
