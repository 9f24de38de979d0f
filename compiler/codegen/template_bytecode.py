"""Compiled templates in ``__pycache__``.

Jinja makes Python of a template, which takes longer than to render all kernels of a model.  A file is used only for the
text, the options and the version of Jinja that it was made with.
"""

from __future__ import annotations

import hashlib

import jinja2
from jinja2.bccache import Bucket

from ...runtime.plan import bytecode_file


class TemplateBytecode(jinja2.BytecodeCache):
    """The cache of an environment whose templates are in ``folder`` and which has these ``options``.

    Where nothing can be read or written it has no effect.
    """

    def __init__(self, folder: str, options: str) -> None:
        self._folder = folder
        self._compiler_version = f"{jinja2.__version__} {options}"

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the path of the file for a template."""
        return bytecode_file.path_of(self._folder, name.replace("/", "."))

    def get_source_checksum(self, source: str) -> str:
        """Return a digest of all that determines the bytecode, but for Python's version."""
        return hashlib.sha256(f"{self._compiler_version}\0{source}".encode()).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = bytecode_file.load(bucket.key, bucket.checksum)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if bucket.code is not None:
            bytecode_file.store(bucket.key, bucket.checksum, bucket.code)
