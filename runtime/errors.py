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


def printable(text: str) -> str:
    """``text`` as one line: names come from files, and a control character in one would act on a terminal."""
    line = " ".join(text.splitlines())
    return line if line.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


class ShaderloomError(Exception):
    """Base of the family.  Each member has a ``stage`` (an instance may have another) and a ``remedy``."""

    stage = "shaderloom"
    #: what to do where an error gives no hint of its own
    remedy = ""

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
        hint = f" [{self.hint or self.remedy}]" if self.hint or self.remedy else ""
        return printable(f"{self.stage}{where}{tensor}: {self.reason}{hint}")


class ModelError(ShaderloomError):
    """The file is not a valid ONNX model, or a file that it refers to is missing or wrong."""

    stage = "model"
    remedy = "onnx.checker.check_model tells more; export the model again"


class BundleError(ShaderloomError):
    """A shader bundle is damaged, of an unknown version, or none at all; the message names the file."""

    stage = "bundle"
    remedy = "make it again: shaderloom compile"


class UnsupportedError(ShaderloomError):
    """A valid model uses an operator, attribute, type or shape that no provider of the session supports."""

    stage = "support"
    remedy = "export the model without it, or add the operator: shaderloom.register_operator"


class ShapeError(ShaderloomError):
    """Shapes or types of a node's operands do not fit together, or a needed dimension is not known."""

    stage = "shapes"
    remedy = "check the shapes of the inputs, and the model with onnx.checker.check_model"


class NotKnownError(ShapeError):
    """What must be known while compiling is computed from the elements of the inputs: it is known in a later stage."""

    remedy = "a session computes it first and compiles the rest then; for a bundle make it a constant of the model"


class InputError(ShaderloomError, ValueError):
    """The caller passed a wrong input: unknown name, wrong rank, dtype, dimension, or option."""

    stage = "input"
    remedy = "session.get_inputs() and get_outputs() tell what the model takes and gives"


class LimitError(ShaderloomError):
    """A limit of the device, or a cap set by the caller, would be exceeded."""

    stage = "limits"
    remedy = "use smaller inputs, or raise the cap that is named"


class DeviceError(ShaderloomError):
    """No usable adapter, a failed device request, or an operation that the device refused."""

    stage = "device"
    remedy = "shaderloom devices lists the adapters"


class DeviceLost(DeviceError):
    """The device is gone; buffers and pipelines made on it cannot be used any more."""

    remedy = "session.recover(), or open a new session"


class ClosedError(ShaderloomError):
    """A session or tensor was used after it was closed."""

    stage = "closed"
    remedy = "open it again"


class InternalError(ShaderloomError):
    """An invariant of the compiler does not hold: a fault of Shaderloom, not of the model."""

    stage = "internal"
    remedy = "please report it with the model"
