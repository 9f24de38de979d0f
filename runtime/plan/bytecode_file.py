"""What is made of source files, kept in ``__pycache__`` as Python keeps the bytecode of a module: code, simple values.

Who can write to the folder can write to the package's own bytecode, so a file there is trusted as that is.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source
from typing import Any


def path_of(folder: str, name: str) -> str:
    """Return the path of the file of ``name`` in ``folder``, by Python's own rule: a prefix for such files holds."""
    return cache_from_source(os.path.join(folder, name))


def load(path: str, checksum: str) -> Any:
    """Return the value in the file at ``path``; None for a damaged one, or one of another ``checksum`` or Python.

    ``checksum`` is a text of all that determines the value, but for Python's version.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    head, body = content[:_HEAD], content[_HEAD:]
    return marshal.loads(body) if head == _head(checksum, body) else None


def store(path: str, checksum: str, value: Any) -> None:
    """Write the file at ``path``, if there may be one: not with ``sys.dont_write_bytecode``.

    ``value`` is code, or made of texts, numbers, tuples and dicts.
    """
    if sys.dont_write_bytecode:
        return
    body = marshal.dumps(value)
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(_head(checksum, body) + body)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _head(checksum: str, body: bytes) -> bytes:
    """Return the first bytes of a file."""
    return MAGIC_NUMBER + hashlib.sha256(checksum.encode() + body).digest()


_HEAD = len(_head("", b""))
