"""Compiled templates in ``__pycache__``, beside the bytecode of the package: as Python keeps that of a module.

Jinja makes Python of a template, which takes longer than to render all kernels of a model.  Who can write to the folder
can write to the package's own bytecode, so a file there is trusted as that is; it is used only for the text, the
options and the version of Jinja that it was made with.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source

import jinja2
from jinja2.bccache import Bucket


class TemplateBytecode(jinja2.BytecodeCache):
    """The cache of an environment whose templates are in ``folder`` and which has these ``options``.

    Where nothing can be read or written it has no effect; with ``sys.dont_write_bytecode`` nothing is written.
    """

    def __init__(self, folder: str, options: str) -> None:
        self._folder = folder
        self._made_by = f"{jinja2.__version__} {options}"

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the path of the file for a template: Python's own rule, so that a prefix for such files holds."""
        return cache_from_source(os.path.join(self._folder, name.replace("/", ".")))

    def get_source_checksum(self, source: str) -> str:
        """Return a digest of all that determines the bytecode, but for Python's version."""
        return hashlib.sha256(f"{self._made_by}\0{source}".encode()).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            with open(bucket.key, "rb") as file:
                content = file.read()
        except OSError:
            return
        head, body = content[:_HEAD], content[_HEAD:]
        if head == _head(bucket.checksum, body):
            bucket.code = marshal.loads(body)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode or bucket.code is None:
            return
        body = marshal.dumps(bucket.code)
        temporary = f"{bucket.key}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(bucket.key), exist_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
                file.write(_head(bucket.checksum, body) + body)
            os.replace(temporary, bucket.key)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _head(checksum: str, body: bytes) -> bytes:
    """Return the first bytes of a file, which a damaged one and one of another template or Python do not have."""
    return MAGIC_NUMBER + hashlib.sha256(checksum.encode() + body).digest()


_HEAD = len(_head("", b""))
