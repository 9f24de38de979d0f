"""What Ctrl-C does to the command line program: a line and a status, from the first import to the end of the process.

Imports little: it is there before anything that takes time.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # as in the package: typing takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

#: Exit status after Ctrl-C, as of every program that a signal ends
INTERRUPTED = 130
#: Seconds after which an interrupt that reached nobody is raised again
_AGAIN = 0.01


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
    """Let Ctrl-C raise KeyboardInterrupt in the body where it would end the process at once.

    One that comes while an object's finaliser runs, from which no exception leaves, is raised again behind that.
    """
    if signal.getsignal(signal.SIGINT) is not leave:
        yield
        return
    show = sys.unraisablehook
    sys.unraisablehook = _raised_again(show)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, leave)
        sys.unraisablehook = show


def _raised_again(show: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a hook for exceptions that reach nobody: interrupts are raised again, others go to ``show``."""

    def hook(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            show(unraisable)
            return
        from threading import Timer

        again = Timer(_AGAIN, _interrupt)  # at once it would come in this hook
        again.daemon = True
        again.start()

    return hook


def _interrupt() -> None:
    """Send an interrupt to the main thread, which also ends a call of the system that waits, where there are such."""
    if not hasattr(signal, "pthread_kill"):
        _thread.interrupt_main()
        return
    from threading import main_thread

    main = main_thread().ident
    assert main is not None, "it was started"
    signal.pthread_kill(main, signal.SIGINT)


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], bool]]:
    """Note a first Ctrl-C in the body, which asks the function that it is given; a second one is raised.

    For what is better not left halfway.  A process that ignores the signal, or handles it in its own way, goes on to.
    """
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield lambda: False
        return

    def note(number: int, _: object) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(noted)
    finally:
        signal.signal(signal.SIGINT, before)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C from now on where it would end the process at once: all is done, and the status is known.

    While an interpreter ends it takes its handlers back, after which the signal would kill the process without a word.
    """
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
