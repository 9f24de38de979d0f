"""The plan: what the compiler hands to the executor.  Plain frozen data: no device objects, no onnx, serialisable.

Dimensions
    A number in a plan that may depend on declared dynamic dimensions is a :data:`DimExpr`: an int, the name of a
    symbol, or a list ``[operator, operand, ...]`` with operators ``+ * // % min max``.

Buffers
    Everything that a call binds is a :class:`Range` of a *buffer*, named by a string:

    ``input:NAME`` / ``output:NAME``   a model input or output, contiguous, in ONNX order and element size
    ``arena:N``                        activation memory; the plan gives the size of each arena
    ``weight:KEY``                     a weight of the session-wide pool, made by a transform or uploaded as it is
    ``source:KEY``                     raw bytes of an initializer, needed only while weights are made
    ``symbols``                        the uniform buffer with the declared dynamic dimensions, one i32 each, in the
                                       order of ``Plan.symbols`` (padded to 16 bytes): see :func:`uniform_values`
    ``problem:N``                      a uniform buffer with the numbers of ``Plan.problems[N]``, one i32 each (padded
                                       to 16 bytes)
    ``iteration``                      in a :class:`RepeatedPass`: a uniform buffer whose first i32 is the number of the
                                       iteration, bound with a dynamic offset
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from .codec import decode, digest, encode
from .dimension import DimExpr, dim_text, evaluate, shape_text
from .errors import printable_lines
from .facts import PlanFacts, TensorKind
from .format import FORMAT, format_problem
from .notes import PlanNotes
from .record import record
from .size_range import SizeRange


@record
class Range:
    """Part of a buffer in bytes.  ``size`` is what the kernel may touch, padded as in ``dtypes.padded_bytes``."""

    buffer: str
    offset: DimExpr
    size: DimExpr


@record
class Binding:
    """One entry of bind group 0.

    ``access`` is ``read``, ``read_write``, ``uniform``, or ``iteration``: a uniform buffer with a dynamic offset.
    """

    name: str
    access: str
    element: str  #: WGSL element type of the array, e.g. ``vec4<f32>``

    @property
    def is_uniform(self) -> bool:
        return self.access in ("uniform", "iteration")


@record
class Kernel:
    """A compiled shader, whose entry point is ``main``.  ``key`` is the sha256 of all that determined its text."""

    key: str
    template: str
    wgsl: str = field(repr=False)
    workgroup: tuple[int, int, int]
    bindings: tuple[Binding, ...]
    features: tuple[str, ...] = ()
    workgroup_bytes: int = 0
    config: tuple[tuple[str, Any], ...] = ()  #: the tile configuration, for people

    @property
    def id(self) -> str:
        return self.key[:12]


@record
class KernelCall:
    """A dispatch: one range per binding of the kernel, and the number of workgroups in each dimension."""

    kernel: str  #: key of the kernel
    ranges: tuple[Range, ...]
    grid: tuple[DimExpr, DimExpr, DimExpr]
    origins: tuple[str, ...] = ()  #: ONNX nodes, for people
    label: str = ""
    flops: DimExpr = 0  #: arithmetic operations (a multiply-add counts two), in a run
    bytes: DimExpr = 0  #: bytes read and written at least once


@record
class SourceRef:
    """Bytes of an initializer: a range of a file (``path`` relative to the model unless empty), or inline data.

    ``path`` is "" for the model file itself, and None when ``data`` holds the bytes (base64 in the serialised form).
    """

    key: str
    path: str | None
    offset: int
    length: int
    dtype: str
    shape: tuple[int, ...]
    data: bytes | None = None


@record
class Weight:
    """A tensor of the weight pool.

    Without ``calls`` it is the bytes of its sources, one after another.  With calls it is made by running them in
    order; they bind ``source:KEY`` and ``weight:KEY`` ranges (other weights, or scratch named ``weight:`` that only
    this list uses).
    """

    key: str
    bytes: int
    sources: tuple[str, ...]
    calls: tuple[KernelCall, ...] = ()
    description: str = ""


@record
class Port:
    """A model input or output with its shape in this plan."""

    name: str
    dtype: str
    shape: tuple[DimExpr, ...]

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype}[{shape_text(self.shape)}]"


@record
class ConstantOutput:
    """An output whose value is known at compile time: no kernel computes it."""

    output: str
    source: SourceRef


@record
class OutputAlias:
    """An output that is the same tensor as an input, another output, or a weight: copied, not computed in a run."""

    output: str
    source: str  #: buffer name: ``input:NAME``, ``output:NAME`` or ``weight:KEY``
    size: DimExpr


@record
class OutputState:
    """An output that begins a run with the elements of an input of the same type and shape.

    Calls write parts of the output and bind the input nowhere, so that one buffer of the caller's may be both.
    """

    output: str
    input: str


@record
class ComputePass:
    """Calls that run on the device, in order, as one compute pass."""

    kind: ClassVar[str] = "device"

    calls: tuple[KernelCall, ...]


#: Bytes from one number to the next in the buffer ``iteration``: WebGPU's alignment of dynamic offsets
ITERATION_STRIDE = 256
#: Iterations of a :class:`RepeatedPass`, at most: the buffer ``iteration`` takes 16 MiB then
MOST_ITERATIONS = 1 << 16
#: Dispatches of a run, at most, and steps of a bundle's program with them; each iteration counts
MOST_WORK = 1 << 22
#: Workgroups of one dispatch, at most: several times those of the largest tensor
MOST_WORKGROUPS = 1 << 28


@record
class RepeatedPass:
    """Calls that run on the device, in order, ``count`` times one after another, as one compute pass.

    Each iteration sees what the one before it wrote: WGSL has no barrier across workgroups.
    """

    kind: ClassVar[str] = "repeat"

    calls: tuple[KernelCall, ...]
    count: DimExpr


Command = ComputePass | RepeatedPass


def dispatch_count(commands: Sequence[Command], sizes: Mapping[str, int]) -> int:
    """Return how many dispatches a run of the commands has for sizes of the symbols, empty ones included."""
    counts = (evaluate(each.count, sizes) if isinstance(each, RepeatedPass) else 1 for each in commands)
    return sum(len(each.calls) * max(count, 0) for each, count in zip(commands, counts))


@record
class Symbol:
    """A declared dynamic dimension: its size is ``low``, ``low + step``, ... or ``high``."""

    name: str
    low: int
    high: int
    step: int = 1

    @property
    def range(self) -> SizeRange:
        return SizeRange(self.low, self.high, self.step)


def uniform_values(symbols: Sequence[Symbol], sizes: Mapping[str, int]) -> list[int]:
    """Return what the uniform buffer holds: for each symbol the number of whole steps in its size."""
    return [sizes[symbol.name] // symbol.step for symbol in symbols]


class _Key:
    """The key that a plan was given; for "" the digest of its contents, which is made when it is first asked for."""

    def __get__(self, plan: Plan | None, _: type[Plan]) -> str:
        if plan is None:
            raise AttributeError("key")  # as if the class had none
        values = vars(plan)
        if not values["key"]:
            values["key"] = plan.content_digest()
        key: str = values["key"]
        return key

    def __set__(self, plan: Plan, key: str) -> None:
        vars(plan)["key"] = key


@dataclass(frozen=True, repr=False)
class Plan:
    """A compiled model for one shape key.

    The key of a plan that the compiler makes is :meth:`content_digest`: a first run need not wait for it.
    """

    key: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[Symbol, ...]
    kernels: tuple[Kernel, ...]
    sources: tuple[SourceRef, ...]
    weights: tuple[Weight, ...]
    #: each kind of command is a record with a ``kind`` of its own; readers refuse kinds that they do not know
    commands: tuple[Command, ...]
    arenas: tuple[DimExpr, ...]  #: bytes of each arena
    problems: tuple[tuple[int, ...], ...] = ()  #: numbers that calls give to kernels which several problems share
    constants: tuple[ConstantOutput, ...] = ()
    aliases: tuple[OutputAlias, ...] = ()
    states: tuple[OutputState, ...] = ()
    facts: PlanFacts = field(default_factory=PlanFacts)
    notes: PlanNotes = field(default_factory=PlanNotes)

    @property
    def calls(self) -> list[KernelCall]:
        """Calls of all commands, in order."""
        return [call for command in self.commands for call in command.calls]

    @property
    def iterations(self) -> list[DimExpr]:
        """How often each of the calls is dispatched in a run."""
        counts = [command.count if isinstance(command, RepeatedPass) else 1 for command in self.commands]
        return [count for command, count in zip(self.commands, counts) for _ in command.calls]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values; :meth:`from_json` reads them back to an equal plan."""
        return {"format": FORMAT, **encode(self)}

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """Return the plan that :meth:`to_json` wrote.

        Raises :class:`ValueError` if ``data`` is none, or one of another major version of the format.
        """
        if not isinstance(data, dict):
            raise ValueError("a plan is an object")
        if problem := format_problem(data.get("format")):
            raise ValueError(f"its format {problem}")
        return decode(data, cls, "plan")

    def content_digest(self) -> str:
        """Return the digest of all that a run depends on: what the key of a plan is."""
        names = [item.name for item in fields(self) if item.name not in ("key", "facts", "notes")]
        return digest({"format": FORMAT, **{name: encode(getattr(self, name)) for name in names}})

    @property
    def digest(self) -> str:
        """The sha256 of the canonical JSON form, in hex."""
        return digest(self.to_json())

    def __repr__(self) -> str:
        return f"Plan({self.key[:12]!r}, {len(self.kernels)} kernels, {len(self.calls)} calls)"

    def __str__(self) -> str:
        """Return a listing for people: a line for each call of the run, and totals of memory and weights.

        A call's line has its number, kernel, template, grid, results and operands, and the ONNX nodes that it computes.
        Inputs, outputs and weights have their names, other tensors their number in the plan's facts; in a plan without
        facts buffers are listed instead.
        """
        templates = {kernel.key: kernel.template for kernel in self.kernels}
        width = max(map(len, templates.values()), default=0)
        lines = [
            f"plan {self.key[:12]}: {', '.join(map(str, self.inputs)) or 'no inputs'}"
            f" -> {', '.join(map(str, self.outputs))}"
        ]
        for number, (call, count) in enumerate(zip(self.calls, self.iterations)):
            grid = "x".join(map(dim_text, call.grid)) + ("" if count == 1 else f", {dim_text(count)} times")
            tensors, nodes = self._tensors_of(number), ", ".join(call.origins) or call.label
            lines.append(
                f"{number:5}  {call.kernel[:12]}  {templates[call.kernel]:{width}}  {grid}  {tensors}  # {nodes}"
            )
        high = {symbol.name: symbol.high for symbol in self.symbols}
        arenas = sum(evaluate(size, high) for size in self.arenas)
        weights = sum(weight.bytes for weight in self.weights)
        transforms = sum(bool(weight.calls) for weight in self.weights)
        lines.append(
            f"kernels {len(self.kernels)}, calls {len(self.calls)}, "
            f"arenas {len(self.arenas)} ({arenas:,} bytes{' at most' if high else ''}), "
            f"weights {len(self.weights)} ({weights:,} bytes, {transforms} transformed)"
        )
        return printable_lines("\n".join(lines))

    def _tensors_of(self, number: int) -> str:
        """Return the results and the operands of a call as text."""
        call = self.calls[number]
        if not self.facts.calls:
            return ", ".join(
                f"{item.buffer.partition(':')[0]}:{item.buffer.partition(':')[2][:12]}" for item in call.ranges
            )
        facts, tensors = self.facts.calls[number], self.facts.tensors
        names = [
            tensor.name if tensor.name and tensor.kind is not TensorKind.ACTIVATION else f"%{index}"
            for index, tensor in enumerate(tensors)
        ]
        results = [
            f"{names[index]}:{tensors[index].dtype}[{shape_text(tensors[index].shape)}]" for index in facts.writes
        ]
        return f"{', '.join(results)} = ({', '.join(names[index] for index in facts.reads)})"


Plan.key = _Key()  # type: ignore[assignment]  # behind dataclass, for which it would be a default
