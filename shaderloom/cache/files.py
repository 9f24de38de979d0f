"""Files that this program does not trust: opened without following or waiting, and whose they are."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, limit: int) -> tuple[bytes, os.stat_result]:
    """Return the bytes and the state of the file at ``path``.

    Raises :class:`OSError` for a link, for anything but a regular file (a pipe would wait for its other end), and for
    one of more than ``limit`` bytes.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link") from None
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(limit), status
    finally:
        os.close(handle)


def others_have_access(status: os.stat_result, access: int) -> bool:
    """Return whether a file is another user's, or has one of the permission bits ``access``.

    On Windows, where a user's folders are closed to others by their access lists, the answer is False.
    """
    if not hasattr(os, "geteuid"):
        return False
    return status.st_uid != os.geteuid() or bool(stat.S_IMODE(status.st_mode) & access)
