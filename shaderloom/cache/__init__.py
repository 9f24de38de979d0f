"""The disk cache of compiled plans.

This package imports no other part of the compiler: a hit must not load it.
"""

from .disk import FOLDER_VARIABLE, CacheInfo, DiskCache, default_folder, key_of, open_cache
from .entry import canonical
from .version import compiler_version

__all__ = [
    "FOLDER_VARIABLE",
    "CacheInfo",
    "DiskCache",
    "canonical",
    "compiler_version",
    "default_folder",
    "key_of",
    "open_cache",
]
