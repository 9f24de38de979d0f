"""Caps that a caller sets on what a model may ask for, and the account of device memory that enforces one of them."""

from __future__ import annotations

import threading

from .errors import LimitError
from .record import record

DEFAULT_NODES = 1 << 16  #: nodes of a model: several times those of the largest that exporters write


@record
class Caps:
    """Upper bounds for one session.  Exceeding one is a :class:`LimitError`, raised before anything is made.

    ``device_memory`` counts bytes of every buffer of the session: weights, activations, inputs, outputs, staging.
    ``loop_iterations`` bounds the iterations of a Loop or Scan, which are written out while compiling; where one stands
    in the body of another, the product of their trip counts.
    ``nodes`` bounds the nodes of a model once its functions are inlined and its loops written out.
    ``wgsl_bytes`` bounds the text of one shader; drivers take time and stack that grow with it.
    """

    device_memory: int = 64 << 30
    tensor_elements: int = 1 << 31
    loop_iterations: int = 1024
    nodes: int = DEFAULT_NODES
    wgsl_bytes: int = 1 << 20


class MemoryAccount:
    """Bytes of device memory that a session holds.  Thread-safe."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.used = 0
        self._lock = threading.RLock()  # a collection inside may release the memory of a tensor

    def reserve(self, size: int, purpose: str) -> None:
        """Count ``size`` bytes more, or raise :class:`LimitError` and count nothing."""
        with self._lock:
            if self.used + size > self.cap:
                raise LimitError(
                    f"{purpose} needs {size:,} bytes of device memory on top of {self.used:,}; the cap is {self.cap:,}",
                    hint="raise caps.device_memory",
                )
            self.used += size

    def release(self, size: int) -> None:
        with self._lock:
            self.used -= size
