"""Kernel families: each turns a fused group into a :class:`~.spec.KernelSpec`.

Importing this package imports every module of it, which registers the families (:mod:`.family`).
"""

from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
