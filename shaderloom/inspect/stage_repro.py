"""One kernel of a model in stages as a script: a run is followed to the stage, the step and the call that are meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..execution.program import Program
from ..execution.program.steps import DeviceStep, Observer
from ..plans.placement import Placement
from ..runtime.execution.weight_pool import WeightPool
from ..runtime.plan.errors import InputError
from ..runtime.plan.plan import Plan
from .repro import find_call, find_node, make_script


@dataclass(frozen=True)
class Wanted:
    """Which call is meant.  At least one of ``kernel``, ``call`` and ``node`` is given.

    ``stage`` counts plans from 1 in the order in which they run first, as ``check`` and ``profile`` do; None is the
    first that has the kernel or the node.  ``steps`` are the steps of the loops around, from 0; None is the first time.
    """

    kernel: str | None = None
    call: int | None = None
    node: str | None = None
    stage: int | None = None
    steps: tuple[int, ...] | None = None

    @property
    def is_number(self) -> bool:
        """Whether it counts calls or kernels of one plan."""
        return self.call is not None or (self.kernel is not None and self.kernel.isdigit())

    def find(self, plan: Plan) -> int | None:
        """The call of a plan, None if it is not there; raises :class:`InputError` for a number that is too large."""
        if self.node is not None:
            return find_node(plan, self.node)
        try:
            return find_call(plan, self.kernel, self.call)
        except InputError:
            if self.stage is not None:
                raise
            return None


@dataclass(frozen=True)
class Cut:
    """A script, and what it is of."""

    text: str
    plan: Plan
    stage: int
    call: int
    steps: tuple[int, ...]


def cut_stage(program: Program, feeds: Mapping[str, Any], wanted: Wanted, *, title: str) -> Cut:
    """Run a program and write the call that is ``wanted`` as a script.

    Raises :class:`InputError` if there is none, with the reason: where a node runs instead, which stages there are.
    """
    if wanted.is_number and wanted.stage is None:
        raise InputError(
            "the model runs in stages, each with calls and kernels of its own",
            hint="name the stage as in --call 2.5, or give the start of a kernel's id; profile and check name them",
        )
    pool = program.engine.weights()
    cutter = _Cutter(pool, wanted, title)
    try:
        program.observe(feeds, cutter)
    finally:
        pool.close()
    if cutter.found is not None:
        return cutter.found
    if wanted.node is not None and wanted.stage is None and wanted.steps is None:
        raise no_kernel(wanted.node, program.placement())
    raise cutter.nothing()


class _Cutter(Observer):
    def __init__(self, pool: WeightPool, wanted: Wanted, title: str) -> None:
        self.found: Cut | None = None
        self._pool = pool
        self._wanted = wanted
        self._title = title
        self._ran: dict[str, list[tuple[int, ...]]] = {}  #: plan -> the steps of loops in which it ran
        self._error: InputError | None = None

    def before_plan(self, step: DeviceStep, feeds: dict[str, Any], around: tuple[int, ...]) -> None:
        plan, wanted = step.executor.plan, self._wanted
        self._ran.setdefault(plan.key, []).append(around)
        stage = list(self._ran).index(plan.key) + 1
        if self.found is not None or wanted.stage not in (None, stage) or wanted.steps not in (None, around):
            return
        call = wanted.find(plan)
        if call is None:
            return
        steps = f", step {', '.join(map(str, around))}" if around else ""
        title = f"{self._title}, stage {stage}{steps}"
        text = make_script(step.device, plan, self._pool, feeds, call, title=title)
        self.found = Cut(text, plan, stage, call, around)

    def nothing(self) -> InputError:
        """Why nothing was found."""
        wanted, stages = self._wanted, list(self._ran.values())
        if wanted.stage is not None and not 1 <= wanted.stage <= len(stages):
            return InputError(f"a run on these inputs has no stage {wanted.stage}", hint=f"it has {len(stages)}")
        if wanted.steps is not None:
            ran = stages if wanted.stage is None else [stages[wanted.stage - 1]]
            listed = sorted({steps for each in ran for steps in each if steps})
            text = ", ".join(".".join(map(str, steps)) for steps in listed[:8]) + (", ..." if len(listed) > 8 else "")
            given = ".".join(map(str, wanted.steps))
            return InputError(
                f"nothing of that kind runs in step {given} of a loop on these inputs",
                hint=f"steps that run kernels: {text}" if text else "no loop runs step by step there",
            )
        what = f"the node '{wanted.node}'" if wanted.node is not None else f"the kernel '{wanted.kernel}'"
        where = "no stage" if wanted.stage is None else f"no call of stage {wanted.stage}"
        return InputError(f"{where} has {what}", hint="profile and check name stages, kernels and nodes")


def no_kernel(node: str, placements: list[Placement]) -> InputError:
    """Why a node has no kernel that could be cut out."""
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
            f"'{row.node}' runs on wgpu in parts that go by other names, or only moves elements in another's kernel",
            hint="profile names the kernels of every stage",
        )
    where = "runs on the cpu" if row.provider == "cpu" else "is computed without a kernel of a run"
    return InputError(f"'{row.node}' cannot be cut out as a kernel: it {where} ({row.reason})")
