"""Compare what a model's kernels compute with a reference: outputs, and tensors inside the graph.

The plan that is checked is the one that runs: same kernels, fusion and memory.  A tensor can be compared if a kernel
writes it to memory and it is a tensor of the ONNX graph.  Where one differs, :mod:`.diagnosis` looks for the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .comparison import Difference, NotFinite, compare, not_finite
from .observation import Observation, observe, operands_of, output_tensor, results_of
from .references import OnnxModel, Reference
from .runtime.caps import Caps, MemoryAccount
from .runtime.executor import Executor
from .runtime.loader import WeightPool
from .runtime.plan import KernelCall, Plan

if TYPE_CHECKING:
    from .compiler.driver import Lowered
    from .diagnosis import Diagnosis
    from .model import Model
    from .runtime.device import Device

Feeds = Mapping[str, np.ndarray]

#: Largest error over largest magnitude of a float32 model's tensors in half precision
HALF_TOLERANCE = 2e-2


@dataclass(frozen=True)
class Compilation:
    """A plan with the fused groups that it was made from; ``options`` are those that differ from the checked ones."""

    lowered: Lowered
    plan: Plan
    options: Mapping[str, Any]

    def call_of(self, tensor: str) -> int | None:
        """The call that writes an ONNX tensor of the main graph."""
        for number in range(len(self.plan.calls)):
            row = output_tensor(self.plan, number)
            if row["name"] == tensor and row["graph"] == "main":
                return number
        return None


@dataclass(frozen=True)
class Row:
    """One tensor that was compared.  ``call`` is None where no kernel of the run computes it."""

    tensor: str
    node: str  #: the ONNX node that makes it, as text
    call: int | None
    kernel: str
    difference: Difference


@dataclass(frozen=True)
class Watch:
    """A kernel that makes numbers that are not finite from finite ones; ``expected``: the reference has them too."""

    call: int
    kernel: str
    tensor: str
    dtype: str
    found: NotFinite
    origins: tuple[str, ...]
    expected: bool | None  #: None if the reference does not know the tensor

    @property
    def what(self) -> str:
        if self.dtype == "float16" and self.found.infinite:
            return f"{self.found} elements: beyond 65504, the largest float16 number"
        return f"{self.found} elements"


@dataclass
class CheckResult:
    """``rows`` in graph order; ``outputs`` are the names of the model's outputs among them."""

    against: str
    device: str
    rows: list[Row] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    skipped: list[str] = field(default_factory=list)  #: outputs that the reference does not know
    watches: list[Watch] = field(default_factory=list)
    diagnosis: Diagnosis | None = None

    @property
    def differing(self) -> list[Row]:
        return [row for row in self.rows if not row.difference.is_close]

    @property
    def is_close(self) -> bool:
        return not self.differing


class Checker:
    """One model on one device with one set of inputs.  Close it, or use it in ``with``."""

    def __init__(
        self,
        model: Model,
        source: OnnxModel,
        reference: Reference,
        device: Device,
        feeds: Feeds,
        *,
        tolerance: float | None = None,
        calibration: Feeds | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """A model in half precision is calibrated with ``calibration``, or as a session with ``feeds``."""
        self.model, self.source, self.reference = model, source, reference
        self.device, self.feeds, self.tolerance = device, feeds, tolerance
        if tolerance is None and model.calibration is not None:
            self.tolerance = HALF_TOLERANCE
        self._calibration_feeds = feeds if calibration is None else calibration
        self.progress = progress or (lambda what, done, total: None)
        self.pool = WeightPool(device, model.sources, MemoryAccount(Caps().device_memory))
        self._expected: dict[str, np.ndarray] = {}
        self._spread: dict[str, np.ndarray] = {}
        self._compilations: dict[str, Compilation] = {}

    def close(self) -> None:
        self.pool.close()

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compile(self, **options: Any) -> Compilation:
        """Compile for the inputs; ``options`` replace those of the model.  Kept: asked again, it is the same."""
        from .compiler.driver import CompileOptions, lower, make_plan
        from .compiler.specialise import bind_shapes, specialise

        key = repr(sorted(options.items()))
        if key not in self._compilations:
            if self.model.calibration is not None and self.model.calibration.is_new:
                self._calibrate()
            self.progress("compiling", 0, 0)
            chosen = CompileOptions.of({**self.model.compiler_options, **options})
            bound = bind_shapes(
                self.model.imported, {name: array.shape for name, array in self.feeds.items()}, self.model.dynamic
            )
            profile = self.device.profile
            graph = specialise(self.model.imported, bound.shapes)
            lowered = lower(graph, profile, chosen, choices=self.model.choices(profile))
            plan = make_plan(self.model.imported.graph.nodes, bound.symbols, profile, chosen, lowered)
            self._compilations[key] = Compilation(lowered, plan, options)
        return self._compilations[key]

    def _calibrate(self) -> None:
        from .calibration import measure
        from .feeds import shape_key

        assert self.model.calibration is not None, "the model is in half precision"
        self.progress("calibrating", 0, 0)
        feeds = self._calibration_feeds
        shapes = {name: array.shape for name, array in feeds.items()}
        key = shape_key(self.model.header, shapes, self.model.dynamic)
        plan = self.model.compile_reference(key, shapes, self.device.profile).plan
        self.model.calibration.add(measure(self.device, plan, self.pool, feeds))

    def run(self, *, per_node: bool) -> CheckResult:
        """Compare the outputs; with ``per_node``, or if an output differs, also the tensors inside the graph."""
        compiled = self.compile()
        result = CheckResult(self.reference.name, self.device.name, outputs=tuple(self.source.outputs))
        self.progress("running", 0, 0)
        with Executor(self.device, compiled.plan, self.pool, poison=True) as executor:
            outputs = executor.run(self.feeds)
        self.expect(outputs)
        rows = [
            self._row(compiled, name, outputs[name], compiled.call_of(name)) for name in outputs if self.knows(name)
        ]
        result.skipped = [name for name in outputs if not self.knows(name)]
        observed: dict[int, Observation] = {}
        if per_node or any(not row.difference.is_close for row in rows):
            inside, observed = self._inside(compiled, {row.tensor for row in rows})
            rows = self._in_order([*inside, *rows])
        result.rows = rows
        result.watches = self._watch(compiled, observed)
        if result.differing:
            from .diagnosis import Diagnostician

            result.diagnosis = Diagnostician(self, compiled, result.rows, observed).run(result.differing[0])
        return result

    # -- comparing -------------------------------------------------------------------------------------------------

    def expect(self, names: Iterable[str]) -> None:
        """Ask the reference for tensors, together."""
        missing = [name for name in names if name not in self._expected]
        if missing:
            self.progress(f"computing the reference with {self.reference.name}", 0, 0)
            self._expected.update(self.reference.tensors(self.feeds, missing))
            self._spread.update(self.reference.spread(self.feeds, missing))

    def knows(self, name: str) -> bool:
        return name in self._expected

    def largest(self, name: str) -> float | None:
        """The largest finite magnitude that the reference gives a tensor; None if it does not know it."""
        expected = self._expected.get(name)
        if expected is None or expected.dtype.kind not in "fiu":
            return None
        return float(np.abs(expected[np.isfinite(expected)].astype(np.float64)).max(initial=0.0))

    def compare(self, name: str, array: np.ndarray) -> Difference:
        """Compare a tensor with the reference, which must know it."""
        return compare(array, self._expected[name], tolerance=self.tolerance, other=self._spread.get(name))

    def comparable(self, plan: Plan) -> dict[int, str]:
        """Call -> the ONNX tensor that it writes."""
        found = {}
        for number in range(len(plan.calls)):
            row = output_tensor(plan, number)
            if row["graph"] == "main" and row["name"] in self.source.producers:
                found[number] = row["name"]
        return found

    def node_of(self, tensor: str) -> str:
        """The ONNX node that makes a tensor, as text; "" for inputs and initializers."""
        index = self.source.producers.get(tensor)
        return "" if index is None else self.source.node_text(index)

    def _row(self, compiled: Compilation, name: str, array: np.ndarray, call: int | None) -> Row:
        kernel = "" if call is None else kernel_text(compiled.plan, call)
        return Row(name, self.node_of(name), call, kernel, self.compare(name, array))

    def _inside(self, compiled: Compilation, done: set[str]) -> tuple[list[Row], dict[int, Observation]]:
        names = self.comparable(compiled.plan)
        self.expect(names.values())
        rows, observed = [], {}
        total = len(compiled.plan.calls)
        for found in observe(self.device, compiled.plan, self.pool, self.feeds, range(total)):
            self.progress("comparing tensors", found.call, total)
            observed[found.call] = found
            name = names.get(found.call)
            if name is not None and name not in done and self.knows(name):
                rows.append(self._row(compiled, name, found.array, found.call))
        return rows, observed

    def _in_order(self, rows: list[Row]) -> list[Row]:
        """In the order of the run; what no kernel computes comes first."""
        return sorted(rows, key=lambda row: (-1 if row.call is None else row.call, row.tensor))

    def _watch(self, compiled: Compilation, observed: Mapping[int, Observation]) -> list[Watch]:
        """Calls that turn finite operands into numbers that are not."""
        plan = compiled.plan
        found: dict[int, NotFinite] = {}
        writers: dict[int, int] = {}  # tensor -> the call that writes it
        watches = []
        for number, observation in observed.items():
            record = plan.report["call_records"][number]
            operands = operands_of(record)
            writers.update(dict.fromkeys(results_of(record), number))
            here = not_finite(observation.array)
            if here is None:
                continue
            found[number] = here
            if any(writers.get(operand) in found for operand in operands):
                continue
            if any(not_finite(self.feeds[row["name"]]) for row in self._inputs(plan, operands)):
                continue
            row, call = observation.tensor, plan.calls[number]
            known = self._expected.get(row["name"]) if row["graph"] == "main" else None
            watches.append(
                Watch(
                    number,
                    kernel_text(plan, number),
                    row["name"],
                    row["dtype"],
                    here,
                    call.origins,
                    None if known is None else not_finite(known) is not None,
                )
            )
        return watches

    def _inputs(self, plan: Plan, operands: Iterable[int]) -> Iterable[Mapping[str, Any]]:
        rows = (plan.report["tensors"][operand] for operand in operands)
        return [row for row in rows if row["kind"] == "input"]


def kernel_text(plan: Plan, call: int) -> str:
    """A call's kernel for people: id and template."""
    found: KernelCall = plan.calls[call]
    template = next(kernel.template for kernel in plan.kernels if kernel.key == found.kernel)
    return f"{found.kernel[:12]} ({template})"
