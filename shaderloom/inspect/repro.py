"""One kernel of a model as a standalone script: for bug reports and for tuning.

A run is followed to the selected stage, iteration and call.  The script contains the shader, the kernel's operands in a
run (packed), its result, and the ONNX nodes that it computes.  It needs numpy and wgpu, not this project.  It compares
with the recorded result and times the kernel: change the shader in it and run it again.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np

from ..execution.engine import WgpuEngine
from ..execution.steps import Observer, PlanStep
from ..plans.describe import find_kernels
from ..plans.instrument import copy_call, copy_kernel, first_commands, output_range
from ..plans.placement import Placement
from ..runtime.device.device import Device
from ..runtime.execution.executor import Executor
from ..runtime.execution.weight_pool import WeightPool
from ..runtime.plan.dimension import evaluate
from ..runtime.plan.errors import InputError, LimitError
from ..runtime.plan.plan import ComputePass, Plan, Port, Range, uniform_values
from ..runtime.plan.record import record
from .report.annotate import annotated, comments, plain, tensor_text

#: Largest size in bytes of a script's operands: it must fit into a bug report
LARGEST = 64 << 20


@record(slots=False)
class CallSelection:
    """Selects a call.  Set at least one of ``kernel``, ``call`` and ``node``.

    ``stage`` counts plans from 1 in the order in which they first run, as ``check`` and ``profile`` do; None is the
    first that has the kernel or the node.  ``iterations`` are those of the enclosing loops, from 0; None is the first
    execution.
    """

    kernel: str | None = None
    call: int | None = None
    node: str | None = None
    stage: int | None = None
    iterations: tuple[int, ...] | None = None

    @property
    def is_number(self) -> bool:
        """Return whether the selection is a number of a call or kernel within one plan."""
        return self.call is not None or (self.kernel is not None and self.kernel.isdecimal())

    def find(self, plan: Plan, *, is_whole: bool) -> int | None:
        """Return the number of the selected call in a plan, None if the plan has no such call.

        Raises :class:`InputError` where no other plan can have it: for the only plan, or for the selected stage.
        """
        if self.node is not None:
            return _find_node(plan, self.node)
        try:
            return _find_call(plan, self.kernel, self.call)
        except InputError:
            if is_whole or self.stage is not None:
                raise
            return None


@record(slots=False)
class ReproScript:
    """A script and its origin: a call of a plan, which is one ``stage``, in ``iterations`` of the enclosing loops.

    ``stage`` is None for a model that is one plan.
    """

    text: str
    plan: Plan
    stage: int | None
    call: int
    iterations: tuple[int, ...]

    def __str__(self) -> str:
        stage = "" if self.stage is None else f" of stage {self.stage}"
        return f"call {self.call}{stage}{_around(self.iterations)}, {', '.join(self.plan.calls[self.call].origins)}"


def cut(engine: WgpuEngine, feeds: Mapping[str, Any], wanted: CallSelection, *, title: str) -> ReproScript:
    """Run a model and write the selected call as a script.

    Raises :class:`InputError` if there is none, with the reason: where a node runs instead, which stages there are.
    """
    pool = engine.resources.weights()
    cutter = _Cutter(engine, pool, wanted, title)
    try:
        engine.observe(feeds, cutter)
    finally:
        pool.close()
    if cutter.cut is not None:
        return cutter.cut
    if wanted.node is not None and wanted.stage is None and wanted.iterations is None:
        raise _no_kernel(wanted.node, engine.placement())
    raise cutter.nothing()


class _Cutter(Observer):
    def __init__(self, engine: WgpuEngine, pool: WeightPool, wanted: CallSelection, title: str) -> None:
        self.cut: ReproScript | None = None
        self._engine = engine
        self._pool = pool
        self._wanted = wanted
        self._title = title
        self._ran: dict[str, list[tuple[int, ...]]] = {}  #: plan -> the iterations of loops in which it ran

    def before_plan(self, step: PlanStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        plan, wanted, is_whole = step.executor.plan, self._wanted, not self._engine.ran_steps
        if is_whole and (wanted.stage is not None or wanted.iterations is not None):
            raise InputError(
                "the model is one plan for these inputs, without stages", hint="write --call N, without --iteration"
            )
        if not is_whole and wanted.is_number and wanted.stage is None:
            raise InputError(
                "the model runs in stages, each with calls and kernels of its own",
                hint="name the stage as in --call 2.5, or give the start of a kernel's id; profile and check name them",
            )
        self._ran.setdefault(plan.key, []).append(around)
        stage = list(self._ran).index(plan.key) + 1
        if self.cut is not None or wanted.stage not in (None, stage) or wanted.iterations not in (None, around):
            return
        call = wanted.find(plan, is_whole=is_whole)
        if call is None:
            return
        title = self._title if is_whole else f"{self._title}, stage {stage}{_around(around)}"
        text = make_script(step.device, plan, self._pool, feeds, call, title=title)
        self.cut = ReproScript(text, plan, None if is_whole else stage, call, around)

    def nothing(self) -> InputError:
        """Build the error that explains why no call matches."""
        wanted, stages = self._wanted, list(self._ran.values())
        if not stages:
            return InputError("no kernel runs on these inputs", hint="inspect --show placement says where nodes are")
        if wanted.stage is not None and not 1 <= wanted.stage <= len(stages):
            return InputError(f"a run on these inputs has no stage {wanted.stage}", hint=f"it has {len(stages)}")
        if wanted.iterations is not None:
            ran = stages if wanted.stage is None else [stages[wanted.stage - 1]]
            listed = sorted({iterations for each in ran for iterations in each if iterations})
            text = ", ".join(".".join(map(str, each)) for each in listed[:8]) + (", ..." if len(listed) > 8 else "")
            asked = ".".join(map(str, wanted.iterations))
            return InputError(
                f"no matching kernel runs in iteration {asked} of a loop on these inputs",
                hint=f"iterations that run kernels: {text}"
                if text
                else "no loop runs one iteration after another there",
            )
        what = f"the node '{wanted.node}'" if wanted.node is not None else f"the kernel '{wanted.kernel}'"
        scope = "no stage" if wanted.stage is None else f"no call of stage {wanted.stage}"
        return InputError(f"{scope} has {what}", hint="profile and check name stages, kernels and nodes")


def _around(iterations: Sequence[int]) -> str:
    return f", iteration {', '.join(map(str, iterations))}" if iterations else ""


def _no_kernel(node: str, placements: Sequence[Placement]) -> InputError:
    """Build the error that explains why a node has no kernel to extract."""
    matching = [row for row in placements if row.node == node or row.node.endswith(f"/{node}")]
    if not matching:
        return InputError(
            f"no node that has run on these inputs has the name '{node}'",
            hint="a node is its name, or its text in check; those of branches that are not taken never run",
        )
    row = matching[0]
    if row.op_type in ("If", "Loop", "Scan") and not row.domain and row.provider != "cpu":
        return InputError(
            f"'{row.node}' has no kernel of its own: the nodes of its graphs have them", hint="name one of those"
        )
    if row.provider == "wgpu":
        return InputError(
            f"'{row.node}' runs on wgpu in parts that have other names, or only moves elements in another's kernel",
            hint="profile names the kernels of every stage",
        )
    explanation = "runs on the cpu" if row.provider == "cpu" else "is computed without a kernel of a run"
    return InputError(f"'{row.node}' cannot be cut out as a kernel: it {explanation} ({row.reason})")


def _find_call(plan: Plan, kernel: str | None, call: int | None) -> int:
    """Return the number of the selected call: ``call`` itself, or the first of a kernel.

    Raises :class:`InputError` if there is none, or neither is passed.
    """
    if call is not None:
        if not 0 <= call < len(plan.calls):
            raise InputError(f"the plan has no call {call}", hint=f"it has {len(plan.calls)}, see inspect")
        return call
    if kernel is None:
        raise InputError("which kernel?", hint="give --kernel or --call; inspect lists them")
    keys = {candidate.key for candidate in find_kernels(plan, kernel)}
    for number, item in enumerate(plan.calls):
        if item.kernel in keys:
            return number
    raise InputError(f"no call of a run has the kernel '{kernel}'", hint="inspect lists them")


def _find_node(plan: Plan, node: str) -> int | None:
    """Return the first call that computes an ONNX node, by its name or text in plans; None if there is none."""
    for number, item in enumerate(plan.calls):
        if any(node == origin or f" '{node}' (" in origin for origin in item.origins):
            return number
    return None


def make_script(
    device: Device, plan: Plan, pool: WeightPool, feeds: Mapping[str, np.ndarray], number: int, *, title: str
) -> str:
    """Return the script of call ``number``, with its operands and result in a run on these inputs.

    Raises :class:`LimitError` if the operands are too large for a script.
    """
    from ..plans.profiling import symbol_values

    symbols = symbol_values(plan, feeds)
    call = plan.calls[number]
    operands = [plan.facts.tensors[tensor] for tensor in plan.facts.calls[number].operands]
    grid = [evaluate(size, symbols) for size in call.grid]
    if 0 in grid:
        raise InputError(f"call {number} does nothing for these inputs: a tensor of it is empty", hint="choose another")
    kernel = next(candidate for candidate in plan.kernels if candidate.key == call.kernel)
    if any(binding.access == "iteration" for binding in kernel.bindings):
        raise InputError(f"call {number} is repeated, and a script has one dispatch", hint="check compares its result")
    total = sum(evaluate(item.size, symbols) for item in call.ranges)
    if total > LARGEST:
        raise LimitError(
            f"the kernel's tensors take {total:,} bytes, more than the {LARGEST:,} that a script may hold",
            hint="use smaller inputs",
        )
    before, after = _record(device, plan, pool, feeds, number, symbols)
    bindings = []
    for position, (binding, item) in enumerate(zip(kernel.bindings, call.ranges)):
        described = "sizes of the problem" if binding.name == "problem" else "dynamic dimensions"
        if position < len(operands):
            described = plain(tensor_text(operands[position]))
        bindings.append(
            {
                "name": binding.name,
                "access": binding.access,
                "description": described,
                "size": max(evaluate(item.size, symbols), 16),
                "data": _packed(before[position]),
            }
        )
    return _template().render(
        title=plain(title),
        number=number,
        kernel=kernel.id,
        template=kernel.template,
        config=dict(kernel.config),
        origins=[plain(origin) for origin in call.origins],
        adapter=plain(device.name),
        features=list(kernel.features),
        wgsl=annotated(kernel.wgsl, comments(plan, number)),
        bindings=bindings,
        grid=grid,
        flops=evaluate(call.flops, symbols),
        output=len(operands) - 1,
        expected=_packed(after),
        dtype=_output_dtype(operands[-1].dtype),
    )


def _template() -> Any:
    import jinja2

    text = (resources.files(__package__) / "report" / "repro.py.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["python"] = repr
    return environment.from_string(text)


def _packed(data: np.ndarray) -> list[str]:
    """Return bytes as base64 of zlib, in lines."""
    text = base64.b64encode(zlib.compress(data.tobytes(), 9)).decode("ascii")
    return [text[start : start + 110] for start in range(0, len(text), 110)] or [""]


def _output_dtype(name: str) -> str:
    """Return the numpy dtype of the comparison; that of 32-bit words where numpy has no such type."""
    return name if name in np.sctypeDict else "uint16" if name == "bfloat16" else "uint32"


def _record(
    device: Device,
    plan: Plan,
    pool: WeightPool,
    feeds: Mapping[str, np.ndarray],
    number: int,
    symbols: Mapping[str, int],
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the words of every binding before the call, and those of the result after it."""
    call = plan.calls[number]
    recorded = _recording(plan, number)
    names = [port.name for port in recorded.outputs if port.name.startswith("binding ") or port.name == "result"]
    with Executor(device, recorded, pool) as executor:
        outputs = executor.run(feeds, names)
    before = []
    for position, item in enumerate(call.ranges):
        if item.buffer == "symbols":
            before.append(np.asarray(uniform_values(plan.symbols, symbols), np.int32))
        elif _is_uniform(item):
            before.append(np.asarray(plan.problems[int(item.buffer.partition(":")[2])], np.int32))
        else:
            before.append(outputs[f"binding {position}"])
    return before, outputs["result"]


def _is_uniform(item: Range) -> bool:
    return item.buffer.partition(":")[0] in ("symbols", "problem")


def _recording(plan: Plan, number: int) -> Plan:
    """Return ``plan`` up to one call, with copies of all its bindings before it, and of its result after it."""
    call = plan.calls[number]
    copies, outputs = [], []
    for position, item in enumerate(call.ranges):
        if _is_uniform(item):
            continue
        name = f"binding {position}"
        copies.append(copy_call(item, name))
        outputs.append(Port(name, "uint32", (["//", item.size, 4],)))
    written = output_range(plan, number)
    outputs.append(Port("result", "uint32", (["//", written.size, 4],)))
    calls = (*copies, call, copy_call(written, "result"))
    return replace(
        plan,
        key="",
        kernels=(*plan.kernels, copy_kernel()),
        commands=(*first_commands(plan, number), ComputePass(calls)),
        outputs=(*plan.outputs, *outputs),
    )
