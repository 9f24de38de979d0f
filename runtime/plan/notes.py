"""Notes on a plan for people: what ``inspect``, reports and ``print`` show.  No code decides anything by them."""

from __future__ import annotations

from dataclasses import field

from .record import record


@record
class CallNotes:
    """The parts of a call's kernel: its family, and the ONNX nodes of each part as texts."""

    family: str
    prologue: tuple[str, ...]
    anchor: tuple[str, ...]
    epilogue: tuple[str, ...]
    decision: str | None  #: the problem that its configuration was chosen for, None where there was no choice


@record
class MemoryNotes:
    """Bytes of memory; upper bounds where dimensions are declared dynamic."""

    planned_bytes: int  #: of arenas and outputs
    naive_bytes: int  #: of a buffer for every tensor that a call writes
    lower_bound_bytes: int  #: of the tensors that are live at once
    weight_bytes: int
    in_place: int  #: number of calls that overwrite an operand


@record
class FusionRefusal:
    """The reason for which two neighbouring nodes do not share a kernel."""

    producer: str
    consumer: str
    why: str


@record
class Alternative:
    """A configuration that was offered for a problem, as text."""

    config: str
    cost: float | None  #: by the cost model, relative to the best; None where a rule ordered the configurations
    chosen: bool


@record
class FullPrecisionValue:
    """A value that stays float32 where others are float16: its ONNX node and tensor, and why."""

    node: str
    tensor: str
    why: str


@record
class PrecisionNotes:
    """Result of half-precision storage: the type, the number of values stored in it, and those that stay float32."""

    stored: str
    activations: int
    weights: int
    full_precision: tuple[FullPrecisionValue, ...]


@record
class PlanNotes:
    """All notes on a plan; empty for a plan that no compiler made."""

    calls: tuple[CallNotes, ...] = ()  #: one for each call of the run, in order
    memory: MemoryNotes | None = None
    not_fused: tuple[FusionRefusal, ...] = ()
    #: the first configurations for each problem that has several, the cost model's best first
    alternatives: dict[str, tuple[Alternative, ...]] = field(default_factory=dict)
    precision: PrecisionNotes | None = None  #: None for a plan in full precision
    widened: tuple[FullPrecisionValue, ...] = ()  #: tensors that the model declares float16 and that are float32
