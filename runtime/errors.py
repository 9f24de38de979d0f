"""The one error family of Shaderloom.

Every error that a user can meet is a :class:`ShaderloomError`.  It names the *stage* that refused, the ONNX node
where the trouble sits (an :class:`Origin`), the *reason*, and a *hint*: what the reader can do about it.
``str(error)`` is one readable line; the command line prints exactly that.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an IR node came from: one node of the ONNX file.

    ``graph`` is the path of (sub)graphs from the main graph down, e.g. ``"main"`` or ``"main/If_3.then_branch"``;
    ``index`` is the node's position in that graph's node list.
    """

    graph: str
    index: int
    op: str
    name: str = ""

    def __str__(self) -> str:
        label = f" '{self.name}'" if self.name else ""
        return f"{self.op}{label} ({self.graph} node {self.index})"


class ShaderloomError(Exception):
    """Base of the family.  ``stage`` is a class attribute of each member and can be overridden per instance."""

    stage = "shaderloom"

    def __init__(
        self,
        reason: str,
        *,
        origin: Origin | None = None,
        tensor: str | None = None,
        hint: str | None = None,
        stage: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.origin = origin
        self.tensor = tensor
        self.hint = hint
        if stage is not None:
            self.stage = stage

    def __str__(self) -> str:
        where = f" at {self.origin}" if self.origin else ""
        tensor = f", tensor '{self.tensor}'" if self.tensor else ""
        hint = f" [{self.hint}]" if self.hint else ""
        return f"{self.stage}{where}{tensor}: {self.reason}{hint}"


class ModelError(ShaderloomError):
    """The file is not a valid ONNX model, or a file that it refers to is missing or wrong."""

    stage = "model"


class BundleError(ShaderloomError):
    """A shader bundle is damaged, of an unknown version, or none at all; the message names the file."""

    stage = "bundle"


class UnsupportedError(ShaderloomError):
    """A valid model uses an operator, attribute, type or shape that no provider of the session supports."""

    stage = "support"


class ShapeError(ShaderloomError):
    """Shapes or types of a node's operands do not fit together, or a needed dimension is not known."""

    stage = "shapes"


class InputError(ShaderloomError, ValueError):
    """The caller passed a wrong input: unknown name, wrong rank, dtype, dimension, or option."""

    stage = "input"


class LimitError(ShaderloomError):
    """A limit of the device, or a cap set by the caller, would be exceeded."""

    stage = "limits"


class DeviceError(ShaderloomError):
    """No usable adapter, a failed device request, or an operation that the device refused."""

    stage = "device"


class DeviceLost(DeviceError):
    """The device is gone; buffers and pipelines made on it cannot be used any more."""


class ClosedError(ShaderloomError):
    """A session or tensor was used after it was closed."""

    stage = "closed"


class InternalError(ShaderloomError):
    """An invariant of the compiler does not hold: a fault of Shaderloom, not of the model."""

    stage = "internal"
