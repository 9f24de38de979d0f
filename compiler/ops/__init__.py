"""The operators, one :class:`~.registry.OpDef` each: ai.onnx in :mod:`.onnx`, com.microsoft in :mod:`.microsoft`, the
compiler's own in :mod:`.internal`; :mod:`.math` has what several share, and defines none.  Each imports only those
before it of math, internal, onnx, microsoft; by name, a decomposition builds nodes of any.

Importing this package imports every module of the three, which fills the registry; an interrupted import is
completed by the next lookup in the registry.
"""

from importlib import import_module
from pkgutil import iter_modules

from .registry import registry

for _package in ("onnx", "internal", "microsoft"):
    for _module in iter_modules(import_module(f".{_package}", __name__).__path__):
        import_module(f".{_package}.{_module.name}", __name__)
registry.completed()
