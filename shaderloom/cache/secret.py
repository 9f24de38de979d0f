"""The secret that authenticates entries of the disk cache: 32 random bytes in a file that only its owner can read.

The file is outside the cache, so that neither a cache that was copied from another machine nor a program that may
write to the cache alone can make an entry that this user's processes accept as their own.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import secrets
from pathlib import Path

from ..log import CACHE
from .files import others_have_access, read_regular

_BYTES = 32
_ANY_ACCESS = 0o077


def secret_path() -> Path:
    """Return the path of the user's secret."""
    import platformdirs

    return Path(platformdirs.user_state_dir("shaderloom", appauthor=False)) / "cache.key"


@functools.cache
def load_secret(path: Path) -> bytes | None:
    """Return the secret in the file at ``path``, which is created if there is none.

    Returns None, and says why to the logger, where the file cannot be read or created, or others have access to it.
    """
    try:
        if not os.path.lexists(path):
            _create(path)
        return _read(path)
    except OSError as error:
        CACHE.warning("entries of the cache are not authenticated: %s: %s", path, error.strerror or error)
        return None


def _create(path: Path) -> None:
    """Write a new secret, all at once: of two processes that try, the one that is second keeps the first one's."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_BYTES))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def _read(path: Path) -> bytes:
    """Return the secret; raise :class:`OSError` for a file that is not the owner's alone."""
    data, status = read_regular(path, _BYTES)
    if others_have_access(status, _ANY_ACCESS):
        raise PermissionError(errno.EPERM, "others than the user have access to the file")
    if len(data) != _BYTES:
        raise OSError(errno.EINVAL, f"the file does not have {_BYTES} bytes")
    return data
