"""Children forked by a process that has used a GPU.

They have copies of its handles, but not the threads of its drivers: whatever wgpu-native or a driver waits for there
never comes.  So such a child uses no device, gives nothing back to wgpu-native, and leaves without the exit handlers
of C libraries, in which Mesa joins the threads that it does not have.
"""

from __future__ import annotations

import ctypes
import os
import sys

from ..plan.errors import DeviceError

FORKED = "this process was forked from one that had used the GPU"
FORK_REMEDY = "start processes with multiprocessing's 'spawn'"

#: the process that has used the GPU first
_first_process = 0
_forked = False


def note_use() -> None:
    """Remember that this process uses a GPU, before its first use; raise as :func:`refuse_forked_process`."""
    global _first_process
    refuse_forked_process()
    if not _first_process:
        _first_process = os.getpid()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_enter_child)


def is_forked() -> bool:
    """Return whether this process was forked from one that had used a GPU."""
    return _forked


def refuse_forked_process() -> None:
    """Raise :class:`DeviceError` in a child forked after its parent used a GPU: there every wait is for ever."""
    if _forked:
        raise DeviceError(FORKED, hint=FORK_REMEDY)


def _enter_child() -> None:
    global _forked
    _forked = True
    bindings = sys.modules.get("wgpu.backends.wgpu_native._api")
    if bindings is not None:
        bindings.libf = None  # type: ignore[attr-defined]  # what wgpu-py takes for the end of Python: objects are kept
    _skip_exit_handlers()


def _skip_exit_handlers() -> None:
    """Let the process end before the exit handlers that are registered by now, with its status and C's files written.

    ``on_exit`` passes the status on; only GNU's C library has it.
    """
    try:
        library = ctypes.CDLL(None)
        library.on_exit(library._exit, None)
        library.__cxa_atexit(library.fflush, None, None)
    except (AttributeError, OSError, TypeError):  # TypeError: Windows, which has no fork either
        return
