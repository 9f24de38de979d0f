"""What Ctrl-C does to the command line program: a line and a status, from the first import to the end of the process.

Imports little: it is there before anything that takes time.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # as in the package: typing takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

#: Exit status after Ctrl-C, as of every program that a signal ends
INTERRUPTED = 130


def leave_on_interrupt() -> None:
    """Let Ctrl-C end this process at once, with a line on standard error and the status :data:`INTERRUPTED`.

    For times at which nothing is to be cleaned up and KeyboardInterrupt would reach nobody, such as imports.  A process
    that was started with the signal ignored, or that handles it in its own way, goes on to do so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)


def leave(*_: object) -> NoReturn:
    """End the process after an interrupt, without the teardown, in which a driver that is busy would be awaited."""
    with suppress(OSError):
        os.write(2, b"error: interrupted\n")
    os._exit(INTERRUPTED)


@contextmanager
def raised_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in the body where it would end the process at once."""
    if signal.getsignal(signal.SIGINT) is not leave:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, leave)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C from now on where it would end the process at once: all is done, and the status is known.

    While an interpreter ends it takes its handlers back, after which the signal would kill the process without a word.
    """
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
