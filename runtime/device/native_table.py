"""The C types of wgpu-native as a table of cffi, in place of the header that wgpu-py has parsed in every process.

cffi parses the header of 100 KB in Python, which takes longer than all else until a device is open.  What it parsed it
can write as Python code (cffi's out-of-line ABI mode): a table whose types are built when they are used.  The code is
kept in ``__pycache__``, for the header and the version of cffi that it was made from.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import tempfile
import threading
from importlib.util import find_spec
from types import CodeType
from typing import Any

from ..plan import bytecode_file

_BINDINGS = "wgpu.backends.wgpu_native._ffi"
_HEADER = ("resources", "combined_header.h")


class _OtherUseError(Exception):
    """wgpu-py declares something else than its header."""


def import_bindings() -> None:
    """Import wgpu-py's bindings with the table if there is one; else as they are, and make the table.

    Does nothing in a process that has them already, or where wgpu-py has its header at another place.  Raises what the
    import of wgpu-py raises.
    """
    header = None if _BINDINGS in sys.modules else _read_header()
    if header is None:
        return
    import cffi

    checksum = hashlib.sha256(f"{cffi.__version__}\0{header}".encode()).hexdigest()
    path = bytecode_file.path_of(os.path.dirname(__file__), "wgpu_header.h")
    code = bytecode_file.load(path, checksum)
    if code is None or not _import_with(header, code):
        ffi = importlib.import_module(_BINDINGS).ffi
        if not sys.dont_write_bytecode:
            bytecode_file.store(path, checksum, table_of(ffi))


def _read_header() -> str | None:
    """Return the header that wgpu-py will parse."""
    spec = find_spec("wgpu")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        try:
            with open(os.path.join(folder, *_HEADER)) as file:
                return file.read()
        except OSError:
            continue
    return None


def table_of(ffi: Any) -> CodeType:
    """Return the code that makes a table, an ``FFI``, of all that ``ffi`` has parsed."""
    from cffi.recompiler import make_py_source

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.py")
        make_py_source(ffi, "wgpu", path)
        with open(path) as file:
            text = file.read()
    return compile(text.replace("_cffi_backend.FFI(", "FFI("), "wgpu_header.h", "exec")


def read_table(code: CodeType, header: str) -> Any:
    """Return the table of ``code``, for a caller that will declare ``header`` as if it were to be parsed."""
    import _cffi_backend

    class Table(_cffi_backend.FFI):  # type: ignore[misc]  # a type of C
        def cdef(self, text: str) -> None:
            if text != header:
                raise _OtherUseError

        def set_source(self, *_: object) -> None:
            """Do nothing: this names the module that a table is written to."""

    names: dict[str, Any] = {"FFI": Table}
    exec(code, names)
    return names["ffi"]


def _import_with(header: str, code: CodeType) -> bool:
    """Import the bindings with a table; return False, with nothing imported, if it is not what they declare."""
    import cffi

    parser, thread = cffi.FFI, threading.get_ident()
    cffi.FFI = lambda *args, **options: (
        read_table(code, header) if threading.get_ident() == thread else parser(*args, **options)
    )
    try:
        importlib.import_module(_BINDINGS)
    except _OtherUseError:
        return False
    finally:
        cffi.FFI = parser
    return True
