"""How long tests wait for what must come."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

#: Seconds after which something hangs: no busy machine is that slow
PATIENCE = 400.0


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Raise TimeoutError in a block that has not ended after PATIENCE, where the system has timers."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"not done after {PATIENCE} s")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
