"""The one error family of Shaderloom.

Every error that a user can meet is a :class:`ShaderloomError`.  It names the part of the work that failed (its *kind*),
the ONNX node where the trouble sits (an :class:`Origin`), the *reason*, and a *hint*: what the reader can do about it.
``str(error)`` is one readable line; the command line prints exactly that.  Each class also is what onnxruntime
raises for such a fault (:mod:`.onnxruntime_errors`), and a class of Python's own where there is one.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from . import onnxruntime_errors as onnxruntime
from .record import record


@record
class Origin:
    """Origin of an IR node: one node of the ONNX file.

    ``graph`` is the path of (sub)graphs from the main graph down, e.g. ``"main"`` or ``"main/If_3.then_branch"``;
    ``index`` is the node's position in that graph's node list.  ``domain`` and ``opset``, which the importer knows, are
    for errors; they do not make another node.  Nor do ``iterations``: of a node in loops that are written out, that of
    each, from 0, the outermost first.
    """

    graph: str
    index: int
    op: str
    name: str = ""
    domain: str = field(default="", compare=False)
    opset: int = field(default=0, compare=False)
    iterations: tuple[int, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        label = f" '{self.name}'" if self.name else ""
        return f"{self.op}{label} ({self.graph} node {self.index})"

    @property
    def described(self) -> str:
        """The node with the domain and the opset that the model imports, where they are known."""
        label = f" '{self.name}'" if self.name else ""
        version = f"; {self.domain or 'ai.onnx'} opset {self.opset}" if self.opset else ""
        return f"{self.op}{label} ({self.graph} node {self.index}{version})"


#: Characters of an error's text; names come from files, and may be of any length
MESSAGE_LENGTH = 4096


def printable(text: str) -> str:
    """Return ``text`` as one line: names come from files, and a control character in one would act on a terminal."""
    line = " ".join(text.splitlines())
    return line if line.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def printable_lines(text: str) -> str:
    """Return ``text`` with its lines and tabs, all else that is not printable escaped as :func:`printable` does."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


class ShaderloomError(Exception):
    """Base class of all errors of this package.

    ``kind`` is the part of the work that failed (model, shapes, limits, device, ...), ``reason`` what is wrong,
    ``hint`` what to do about it.  ``origin`` is the :class:`Origin` of the ONNX node and ``tensor`` the name of the
    tensor at fault, None where there is none.
    """

    kind = "shaderloom"
    #: what to do where an error gives no hint of its own
    remedy = ""
    #: the errors that one stands for which lists several
    parts: tuple[ShaderloomError, ...] = ()

    def __init__(
        self,
        reason: str,
        *,
        origin: Origin | None = None,
        tensor: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.origin = origin
        self.tensor = tensor
        self.hint = hint

    @property
    def advice(self) -> str:
        """What to do: the hint, or else what helps with errors of this class."""
        return self.hint or self.remedy

    def __str__(self) -> str:
        location = f" at {self.origin.described}" if self.origin else ""
        tensor = f", tensor '{self.tensor}'" if self.tensor else ""
        hint = f" [{self.advice}]" if self.advice else ""
        return printable(_cut(f"{self.kind}{_cut(location)}{_cut(tensor)}: {_cut(self.reason)}{hint}"))


def _cut(text: str) -> str:
    """Return ``text`` without its middle if it is long."""
    half = MESSAGE_LENGTH // 2
    return text if len(text) <= MESSAGE_LENGTH else f"{text[:half]} ... {text[-half:]}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def _wider(dtype: str) -> str:
    """Return the type that most likely holds the elements of another: the usual one of the same kind."""
    if dtype.startswith(("float", "bfloat")):
        return "float32"
    return "int64" if dtype in ("uint32", "uint64") else "int32"


#: Characters of a name that are compared with other names: the time to compare two is the product of their lengths
_COMPARED = 128


def likeness(name: str, other: str) -> float:
    """Return the similarity of two names, from 0 to 1, ignoring case."""
    return difflib.SequenceMatcher(None, name[:_COMPARED].casefold(), other[:_COMPARED].casefold()).ratio()


def close_to(name: str, other: str) -> bool:
    """Return whether one name is likely a variant of the other: they differ in case only, or by a misspelling."""
    return likeness(name, other) >= 0.6


def nearest_first(name: str, candidates: Iterable[str]) -> list[str]:
    """Return names by their similarity to another one, then in alphabetical order."""
    return sorted(candidates, key=lambda other: (-likeness(name, other), other))


class ModelError(
    ShaderloomError,
    onnxruntime.Fail,
    onnxruntime.InvalidArgument,
    onnxruntime.InvalidGraph,
    onnxruntime.InvalidProtobuf,
):
    """The file is not a valid ONNX model, or a file that it refers to is missing or wrong."""

    kind = "model"
    remedy = "onnx.checker.check_model tells more; export the model again"


class BundleError(ShaderloomError):
    """A shader bundle is damaged, of an unknown version, or none at all; the message names the file."""

    kind = "bundle"
    remedy = "make it again: shaderloom compile"


class UnsupportedError(ShaderloomError, onnxruntime.NotImplemented, onnxruntime.InvalidGraph, onnxruntime.Fail):
    """A valid model uses an operator, attribute, type or shape that no provider of the session supports.

    ``fault`` names what is at fault with its value (``attribute 'mode' = 'wrap'``, ``element type float64 for input
    1``), and ``supported`` what may stand there instead, the nearest first.  They are empty where a refusal is about
    something else.
    """

    kind = "support"
    remedy = "export the model without it, or add the operator: shaderloom.register_operator"
    fault: str | None = None
    supported: tuple[str, ...] = ()

    @classmethod
    def of_attribute(
        cls, op: str, name: str, value: object, supported: Iterable[object] = (), *, origin: Origin | None = None
    ) -> UnsupportedError:
        """Return the error for an attribute's value, with the values that are supported."""
        fault = f"attribute '{name}' = {value!r:.60}"
        return cls._of(fault, f"{op} does not support {fault}", [_shown(each) for each in supported], value, origin)

    @classmethod
    def of_type(
        cls, op: str, position: int, dtype: str, supported: Iterable[str], *, origin: Origin | None = None
    ) -> UnsupportedError:
        """Return the error for an operand's element type; the hint is to put a Cast before it."""
        fault = f"element type {dtype} for input {position}"
        error = cls._of(fault, f"{op} does not support {fault}", list(supported), _wider(dtype), origin)
        if error.supported:
            error.hint = f"{error.hint}; put a Cast to {error.supported[0]} before it"
        return error

    @classmethod
    def of_result(
        cls, op: str | None, dtype: str, supported: Iterable[str], *, origin: Origin | None = None
    ) -> UnsupportedError:
        """Return the error for the element type of an operator's result, or of an input of the model."""
        fault = f"elements of type {dtype}"
        return cls._of(
            fault, f"{op} gives {fault}" if op else f"it has {fault}", list(supported), _wider(dtype), origin
        )

    @classmethod
    def _of(
        cls, fault: str, reason: str, supported: list[str], value: object, origin: Origin | None
    ) -> UnsupportedError:
        ordered = nearest_first(_shown(value), supported)
        error = cls(reason, origin=origin, hint=f"supported are {', '.join(sorted(ordered))}" if ordered else None)
        if ordered and close_to(_shown(value), ordered[0]):
            error.hint = f"{error.hint}; the nearest is {ordered[0]}"
        error.fault, error.supported = fault, tuple(ordered)
        return error


class ShapeError(ShaderloomError, onnxruntime.InvalidArgument, onnxruntime.RuntimeException, onnxruntime.Fail):
    """Shapes or types of a node's operands do not fit together, or a needed dimension is not known."""

    kind = "shapes"
    remedy = "check the shapes of the inputs, and the model with onnx.checker.check_model"


class NotKnownError(ShapeError):
    """A value that must be known while compiling is computed from elements of the inputs: a later stage knows it."""

    remedy = "a session computes it first and compiles the rest then, and so does a bundle in stages"


#: What to do about an input or an output that is not as the model declares it
DECLARED = "session.get_inputs() and get_outputs() tell what the model takes and gives"


class InputError(ShaderloomError, ValueError, onnxruntime.InvalidArgument):
    """The caller passed a wrong input: unknown name, wrong rank, dtype, dimension, or option."""

    kind = "input"

    @property
    def remedy(self) -> str:  # type: ignore[override]  # a constant of the other classes
        """The way to what the model declares, for an error about one of its tensors."""
        return DECLARED if self.tensor else ""


class _Missing(ShaderloomError, onnxruntime.NoSuchFile, FileNotFoundError):
    """There is nothing at a path, for which Python has a :class:`FileNotFoundError`."""

    remedy = "check the path"
    _noun = "file"

    def __init__(self, path: object, *, tensor: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"there is no {self._noun} '{path}'", tensor=tensor, hint=hint)
        self.errno, self.filename = errno.ENOENT, str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.filename,), self.__dict__


class MissingFileError(_Missing, ModelError):
    """There is no file of the name that was passed as a model, or that a model refers to."""


class MissingBundleError(_Missing, BundleError):
    """There is no bundle at the path that was passed."""

    _noun = "bundle"


class MissingInputError(_Missing, InputError):
    """There is no file of the name that was passed as an input."""


def unwritable(path: object, error: OSError, hint: str = "name another file or folder") -> InputError:
    """Build the error for a result that the operating system does not write to ``path``."""
    return InputError(f"cannot write '{path}': {error.strerror or error}", hint=hint)


class RunError(InputError, onnxruntime.RuntimeException, onnxruntime.Fail):
    """A node failed on the elements of these inputs, or the options of the run ask to end it."""

    remedy = "the inputs do not fit the model: compare them with those that it was made for"


class MemorySharingError(InputError, BufferError):
    """Memory cannot be shared with another library by DLPack, whose protocol asks for a :class:`BufferError`."""

    remedy = "copy the elements: tensor.numpy()"


class MissingEntryError(InputError, RuntimeError):
    """Options have no configuration entry of a name, for which onnxruntime raises a :class:`RuntimeError`."""

    remedy = "add the entry"


class PicklingError(InputError, TypeError):
    """What holds a device cannot be pickled, for which Python asks for a :class:`TypeError`."""

    remedy = "open it in the process that uses it"


class LimitError(ShaderloomError, onnxruntime.RuntimeException):
    """A limit of the device, or a cap set by the caller, would be exceeded."""

    kind = "limits"
    remedy = "use smaller inputs, or raise the cap that is named"


class DeviceLimitError(LimitError):
    """A kernel, or a tensor that it binds, needs more than the device has: another provider may run the node."""

    remedy = "use smaller inputs, or a device that has more"

    @property
    def advice(self) -> str:
        of_nodes = "use smaller inputs, or providers=['wgpu', 'cpu'], which leaves the node to the cpu"
        return of_nodes if self.origin and not self.hint else super().advice


#: Refusals of the compiler that leave a node to another provider, or to a later step of a program
REFUSALS = (UnsupportedError, ShapeError, DeviceLimitError)


class DeviceError(ShaderloomError, onnxruntime.EPFail, onnxruntime.EngineError, onnxruntime.RuntimeException):
    """No usable adapter, a failed device request, or an operation that the device refused."""

    kind = "device"
    remedy = "shaderloom devices lists the adapters"


class DeviceLost(DeviceError, onnxruntime.DeviceReset):
    """The device is gone; buffers and pipelines made on it cannot be used any more."""

    remedy = "session.recover(), or open a new session"


class ClosedError(ShaderloomError, onnxruntime.NoModel):
    """A session or tensor was used after it was closed."""

    kind = "closed"
    remedy = "open it again"


class InternalError(ShaderloomError, onnxruntime.RuntimeException):
    """An invariant of the compiler does not hold: a fault of Shaderloom, not of the model."""

    kind = "internal"
    remedy = "please report it with the model"


#: As many refusals have their reasons in the text of a merged one
_MOST_LISTED = 50


def merge_refusals(errors: Sequence[ShaderloomError]) -> ShaderloomError:
    """Return the only error, or one that lists all, up to 50; merged errors are listed part by part.

    It is a :class:`ShapeError` where all are, which no provider can help, else an :class:`UnsupportedError`.
    """
    errors = [part for error in errors for part in error.parts or (error,)]
    first = errors[0]
    if len(errors) == 1:
        return first
    listed = "; ".join(
        f"{error.origin}: {error.reason}" if error.origin else f"'{error.tensor}': {error.reason}"
        for error in errors[:_MOST_LISTED]
    )
    if len(errors) > _MOST_LISTED:
        listed += f"; and {len(errors) - _MOST_LISTED} more"
    merged: ShaderloomError
    if all(type(error) is ShapeError for error in errors):
        merged = ShapeError(f"{len(errors)} nodes do not fit their inputs: {listed}", origin=first.origin)
    else:
        merged = UnsupportedError(
            f"the model asks {len(errors)} times for what wgpu cannot do: {listed}",
            origin=first.origin,
            hint="providers=['wgpu', 'cpu'] leaves that to the cpu",
        )
    merged.parts = tuple(errors)
    return merged
