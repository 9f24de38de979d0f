"""Options of the compiler, which results may depend on, and limits, beyond which it refuses a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from ..runtime.plan.caps import DEFAULT_NODES
from ..runtime.plan.dtypes import check_precision
from ..runtime.plan.errors import InputError
from ..runtime.plan.record import record


@record
class Limits:
    """Caps of the compiler; a caller may set them."""

    #: largest result that the host computes while compiling; larger constant subgraphs run on the device once
    fold_elements: int = 16_384
    #: largest tensor: positions of elements are signed 32-bit integers on the device
    tensor_elements: int = 2**31 - 1
    #: iterations of a Loop or Scan, times those of the loops around it: they are written out one after another
    loop_iterations: int = 1024
    #: nodes once functions are inlined and loops written out
    nodes: int = DEFAULT_NODES
    #: known indices must be in range for every size of an axis whose sizes are not declared; else for one of them
    every_size: bool = False


DEFAULT_LIMITS = Limits()


#: Values of :attr:`CompileOptions.widen`; callers choose between the first two
WIDEN = ("auto", "off", "measured", "all")


def check_logits(logits: Any) -> str:
    """Return ``logits``; raise :class:`InputError` if it is no choice of rows."""
    if logits not in ("all", "last", "token", "first-token"):
        raise InputError(f"logits is 'all', 'last', 'token' or 'first-token', not {logits!r}")
    return str(logits)


def check_batch(batch: Any) -> str:
    """Return ``batch``; raise :class:`InputError` if it is no choice of how many rows a model takes."""
    if batch not in ("declared", "open"):
        raise InputError(f"batch is 'declared' or 'open', not {batch!r}")
    return str(batch)


def check_activations(activations: Any) -> str:
    """Return ``activations``; raise :class:`InputError` if it is no choice of how products read them."""
    if activations not in ("auto", "float", "int8"):
        raise InputError(f"activations is 'auto', 'float' or 'int8', not {activations!r}")
    return str(activations)


@record(slots=False)
class CompileOptions:
    """Options of one compilation.

    ``disabled_passes`` names passes of :data:`.passes.pipeline.PIPELINE`; tests and ``check`` disable them one by one
    and compare results.
    """

    disabled_passes: tuple[str, ...] = ()
    verify: bool = False  #: check the IR's invariants between passes
    precision: str = "float32"  #: "float16" stores float32 values as float16 where they fit
    #: which tensors that a file declares float16 are float32: see :mod:`.precision.wide_tensors`
    widen: str = "auto"
    #: magnitudes that a run was seen to reach and that do not fit float16: (ONNX node as text, magnitude)
    reached: tuple[tuple[str, float], ...] = ()
    #: which rows of the logits are an output: "all", the "last" valid one (:mod:`.frontend.last_logits`), or "token":
    #: one, with its greatest element and the other ports of generation, or "first-token": the same of the first run
    #: behind an encoder (:mod:`.frontend.next_token`)
    logits: str = "all"
    #: how products with weights in blocks read activations: "auto" rounds them to 8 bits where the model allows it and
    #: the device gains, "int8" everywhere where the device gains, "float" nowhere (:mod:`.passes.byte_products`)
    activations: str = "auto"
    #: "declared", or "open": a model of one row takes any number of rows (:mod:`.batching.open_batch`)
    batch: str = "declared"
    check_indices: bool = False  #: an output tells the ranges of indices (:mod:`.frontend.checked_indices`)

    def __post_init__(self) -> None:
        """Raise :class:`InputError` for an unknown choice of precision, logits, activations, batch or widen."""
        check_precision(self.precision)
        check_logits(self.logits)
        check_activations(self.activations)
        check_batch(self.batch)
        if self.widen not in WIDEN:
            raise InputError(
                f"there is no choice '{self.widen}' of what is widened", hint=f"there are {', '.join(WIDEN)}"
            )

    def without(self, passes: Iterable[str]) -> CompileOptions:
        """Return these options with ``passes`` disabled besides those that are."""
        return replace(self, disabled_passes=tuple(dict.fromkeys((*self.disabled_passes, *passes))))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> CompileOptions:
        """Return the options that JSON values describe.

        Raises :class:`InputError` for an unknown name or a value of another type.
        """
        names = {item.name for item in fields(cls)}
        for name in options:
            if name not in names:
                raise InputError(f"unknown compiler option '{name}'", hint=f"known are {', '.join(sorted(names))}")
        values = dict(options)
        passes = values.pop("disabled_passes", ())
        precision = check_precision(values.pop("precision", "float32"))
        widen = values.pop("widen", "auto")
        texts = {
            "logits": values.pop("logits", "all"),
            "activations": values.pop("activations", "auto"),
            "batch": values.pop("batch", "declared"),
        }
        reached = tuple((str(node), float(magnitude)) for node, magnitude in values.pop("reached", ()))
        if isinstance(passes, str) or not all(isinstance(name, str) for name in passes):
            raise InputError("disabled_passes is a list of names of passes", hint='write it like ["views"]')
        for name, value in values.items():
            if not isinstance(value, bool):
                raise InputError(f"the compiler option '{name}' is true or false, not {value!r}", hint=f"{name}=false")
        values.update(disabled_passes=tuple(passes), precision=precision, widen=widen, reached=reached, **texts)
        return cls(**values)
