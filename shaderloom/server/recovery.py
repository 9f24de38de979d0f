"""A served model whose device is lost gets another one."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..log import SERVER
from ..runtime.plan.errors import ClosedError, DeviceError


class Recovery:
    """Recovers a model from the loss of its device, in a thread of its own, when a check notices the loss."""

    def __init__(self, is_lost: Callable[[], bool], recover: Callable[[], None]) -> None:
        self._is_lost, self._recover = is_lost, recover
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def check(self) -> bool:
        """Return whether the model has its device; if not, begin to recover it."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return False
            if not self._is_lost():
                return True
            self._thread = threading.Thread(target=self._run, name="shaderloom-recovery", daemon=True)
            self._thread.start()
        return False

    def wait(self) -> None:
        """Wait until what has begun is over."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        try:
            self._recover()
        except ClosedError:  # the server is stopping
            pass
        except DeviceError as error:
            SERVER.error("the device of the model is lost, and there is no other one: %s", error)
        except Exception as error:
            SERVER.error("the device of the model is lost, and the model cannot be opened again", exc_info=error)
        else:
            SERVER.warning("the device of the model was lost; the model goes on with another one")
