"""Values that cross between steps: on the device, on the host, or both."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..notices import notify
from ..runtime.device.device import Device
from ..runtime.execution.attachment import Target
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.dtypes import FLOAT16, FLOAT16_LARGEST, DType, from_numpy
from ..runtime.plan.errors import InputError, UnsupportedError
from ..runtime.plan.facts import PLAIN, ValueFacts
from ..runtime.plan.record import record

#: Arrays of at least this many bytes that several steps read are uploaded once
_WORTH_KEEPING = 1024


@record
class Crossing:
    """A value that one provider computed and another one read."""

    tensor: str
    to: str  #: "cpu" or "wgpu"
    bytes: int


class RuntimeValue:
    """A value of a run.

    ``maker`` is the provider that computed it, "caller" for inputs, "compiler" for constants.

    ``tensor`` is its tensor on the device, ``host`` its value on the host: an array, or another ONNX value (a list for
    a sequence, None for an absent optional value).

    ``facts`` are those of the plan that computed it.  One that is wide is declared float16, and ``tensor`` is float32.
    """

    __slots__ = ("_on_host", "_uses", "facts", "host", "maker", "tensor")

    def __init__(self, value: Any, maker: str, facts: ValueFacts = PLAIN) -> None:
        self.maker = maker
        self.facts = facts
        self.tensor: Tensor | None = None
        self.host: Any = None
        self._uses = 0
        if isinstance(value, Tensor):
            self.tensor = value
            self._on_host = False
        else:
            self.host = np.asarray(value) if isinstance(value, np.generic) else value
            self._on_host = True

    @property
    def on_host(self) -> bool:
        return self._on_host

    @property
    def is_wide(self) -> bool:
        return self.facts.is_wide

    @property
    def dtype(self) -> DType | None:
        """The element type that the model declares, if a device can hold the value."""
        if self.is_wide:
            return FLOAT16
        if self.tensor is not None:
            return self.tensor._dtype
        return array_type(self.host)

    @property
    def shape(self) -> tuple[int, ...]:
        if self.tensor is not None:
            return self.tensor.shape
        return self.host.shape if isinstance(self.host, np.ndarray) else ()

    def read(self, *, warn_as: str = "") -> Any:
        """Return the value on the host, in the type that the model declares; wait for the device if it is only
        there.

        ``warn_as`` names the tensor for a warning where that type does not hold it.
        """
        if not self._on_host:
            assert self.tensor is not None, "a value is somewhere"
            array = self.tensor.numpy()
            self.host = narrowed(array, warn_as=warn_as) if self.is_wide else array
            self._on_host = True
        return self.host

    def feed(self, device: Device) -> Tensor | np.ndarray:
        """Return the operand for an executor: the tensor, or an array, which stays on the device from its second read
        on.
        """
        if self.tensor is not None:
            return self.tensor
        self._uses += 1
        if self._uses > 1 and self.host.nbytes >= _WORTH_KEEPING:
            self.tensor = Tensor.from_numpy(self.host, device)
            return self.tensor
        return self.host

    def describe(self, static: bool) -> tuple[Any, ...]:
        """Return the facts that determine how a step on the value is compiled, its elements included if it is
        ``static``.
        """
        dtype = self.dtype
        if dtype is None:
            return (type_text(self.host),)
        if static:
            array = self.read()
            return (dtype.name, array.shape, array.tobytes())
        return f"{dtype.name}{self.facts}", self.shape


def deliver(name: str, value: RuntimeValue, target: Target, device: Device) -> Any:
    """Return a result of several steps at the location that the caller selected.

    Raises :class:`InputError` for one that no device holds and that is to stay on it.
    """
    if isinstance(target, Tensor):
        if value.tensor is not target:
            target.update(value.read())
        return target
    if target == "cpu":
        host = value.read()
        return np.array(host, order="C") if isinstance(host, np.ndarray) and value.maker != "wgpu" else host
    if value.tensor is not None and value.maker == "wgpu" and not value.is_wide:
        return value.tensor
    if value.dtype is None:
        raise InputError("a value of this type cannot stay on a device", tensor=name)
    return Tensor.from_numpy(value.read(), device)


def narrowed(array: np.ndarray, *, warn_as: str = "") -> np.ndarray:
    """Return float32 elements as halves: infinite where they are beyond the range, of which there may be a warning."""
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16)
    lost = np.isinf(halves) & np.isfinite(array) if warn_as else np.zeros(1, bool)
    if lost.any():
        notify(
            f"tensor '{warn_as}' reaches {np.abs(array[lost]).max():.3g} and is infinite where the host reads it: the "
            f"model declares it float16, which ends at {FLOAT16_LARGEST:.0f}, and a node on the cpu takes it so",
            once=f"infinite on the host {warn_as}",
        )
    return halves


def array_type(value: Any) -> DType | None:
    """Return the element type of an array that a device can hold; None for anything else."""
    if not isinstance(value, np.ndarray):
        return None
    try:
        dtype = from_numpy(value.dtype)
    except UnsupportedError:
        return None
    return dtype if dtype.on_device else None


def type_text(value: Any) -> str:
    """Return the kind of a value on the host as text, for people and as part of keys."""
    if isinstance(value, np.ndarray):
        kind = "string" if value.dtype == object or value.dtype.kind in "US" else value.dtype.name
        return f"a tensor of {kind} of rank {value.ndim}"
    if isinstance(value, (list, tuple)):
        inner = type_text(value[0]) if value else "nothing"
        return f"a sequence of {inner}"
    if isinstance(value, dict):
        return "a map"
    return "an absent optional value" if value is None else f"a {type(value).__name__}"
