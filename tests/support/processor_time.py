"""A bound of processor time, for inputs that might make the product run away."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class TooSlow(BaseException):
    """Something takes more than its time; no Exception, which the product might handle."""


def is_available() -> bool:
    """Return whether the system can interrupt a process after some processor time."""
    return hasattr(signal, "SIGPROF")


def watch() -> Any:
    """Let :func:`at_most` interrupt this process, and return the handler before."""
    return signal.signal(signal.SIGPROF, _interrupt)


def watching() -> Iterator[None]:
    """Be a fixture: let :func:`at_most` interrupt a test; skip the test where a process cannot be interrupted."""
    if not is_available():
        pytest.skip("a signal bounds the time")
    before = watch()
    yield
    signal.signal(signal.SIGPROF, before)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise :class:`TooSlow` in a block that takes more ``seconds`` of processor time than this.

    :func:`watch` was called before.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except TooSlow:
        raise TooSlow(f"more than {seconds:g} s of processor time") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _interrupt(*_: object) -> None:
    raise TooSlow
