"""The loss of a device, apart from the calls that end the process on a lost one.

wgpu-native reports errors to Python but for two calls, which it answers with a panic on a lost device: submitting, and
taking the address of a mapped buffer, whose memory goes with the device.  So these and ``destroy()`` of another thread
take turns, and after a loss they are not called any more.  A driver may lose a device, too: wgpu-py tells that in its
log alone, which is read here.  What a driver reports for the first time by refusing a submission still ends the
process.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

#: Seconds for which ``destroy()`` waits for reads of mapped memory; one that an interrupt ended is not awaited for ever
_READING_SECONDS = 10.0


class Gate:
    """The gate of a device: ``turn`` is held while something is submitted, or the device destroyed.

    The lock is used as it is, with ``with``: an interrupt inside a method that takes it would leave it taken.
    """

    def __init__(self, gpu: Any) -> None:
        self.turn = threading.Lock()
        self.lost = False
        self.suspect = False  #: wgpu has told the loss of some device
        self._gpu = weakref.ref(gpu)
        self._readers = 0
        self._unread = threading.Condition(self.turn)

    def require(self) -> None:
        """Raise RuntimeError if the device is lost; call it with the turn, before a submission."""
        if self.lost or (self.suspect and self.check()):
            raise RuntimeError("the device is lost")

    def begin_reading(self) -> None:
        """Keep the device from being destroyed until :meth:`end_reading`; raise as :meth:`require`."""
        with self.turn:
            self.require()
            self._readers += 1

    def end_reading(self) -> None:
        with self.turn:
            self._readers -= 1
            self._unread.notify_all()

    def check(self) -> bool:
        """Ask the device whether it is lost: errors after a loss do not always name it."""
        if not self.lost:
            self.suspect = False
            gpu: Any = self._gpu()  # the caller holds it
            try:
                gpu.create_buffer(size=16, usage=0x8).destroy()
            except Exception as error:  # wgpu raises GPUError and RuntimeError here
                self.lost = tells_loss(error)
        return self.lost

    def destroy(self) -> None:
        """Destroy the device between two submissions, when no mapped memory is read."""
        gpu: Any = self._gpu()  # the caller holds it
        with self.turn:
            self.lost = True
            self._unread.wait_for(lambda: not self._readers, _READING_SECONDS)
            type(gpu).destroy(gpu)


def tells_loss(error: BaseException) -> bool:
    text = str(error).lower()
    return "device is lost" in text or "device lost" in text


_gates: weakref.WeakKeyDictionary[Any, Gate] = weakref.WeakKeyDictionary()
_gates_lock = threading.RLock()


def gate_of(gpu: Any) -> Gate:
    """Return the one gate of a ``wgpu.GPUDevice``, whose ``destroy`` goes through it from now on."""
    with _gates_lock:
        gate = _gates.get(gpu)
        if gate is None:
            gate = _gates[gpu] = Gate(gpu)
            gpu.destroy = gate.destroy
            logging.getLogger("wgpu").addFilter(_notice)  # once: it is the same function
        return gate


def _notice(record: logging.LogRecord) -> bool:
    """Suspect every device if wgpu logs the loss of one, without saying which; called while wgpu-native calls back."""
    if record.levelno >= logging.ERROR and "device was lost" in str(record.msg):
        with _gates_lock:
            for gate in _gates.values():
                gate.suspect = True
    return True
