"""An external view of a model's program: placement, steps, and the plans of its stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from ..execution.values import Crossing
from ..plans.describe import describe_plan
from ..plans.placement import Placement
from ..runtime.plan.codec import encode
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.errors import UnsupportedError
from ..runtime.plan.plan import Plan
from ..runtime.plan.record import record
from ..session.session import InferenceSession
from .inspected_plan import InspectedPlan, model_facts


@record(slots=False)
class ProgramView:
    """The observations of one run on given inputs.  ``plans`` are those of its stages, in the order of last use."""

    placements: tuple[Placement, ...]
    steps: tuple[str, ...]
    crossings: tuple[Crossing, ...]
    plans: tuple[Plan, ...]
    profile: DeviceProfile
    facts: dict[str, Any]
    #: for a half-precision model: a row for each plan, with what stays float32 and why
    precision: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": self.facts,
            "placements": [asdict(row) for row in self.placements],
            "steps": list(self.steps),
            "crossings": [asdict(row) for row in self.crossings],
            "stages": [describe_plan(plan) for plan in self.plans],
            **({"precision": list(self.precision)} if self.precision else {}),
        }

    def largest(self) -> InspectedPlan:
        """Return the stage with the most calls, for a report.

        Raises :class:`UnsupportedError` if nothing runs on the device.
        """
        if not self.plans:
            raise UnsupportedError("no node of the model runs on the device", hint="--show placement says why")
        plan = max(self.plans, key=lambda plan: len(plan.calls))
        name = f"{self.facts['name']}, stage {self.plans.index(plan) + 1} of {len(self.plans)}"
        return InspectedPlan(plan, self.profile, {**self.facts, "name": name, "plan_key": plan.key}, self.placements)


def view_of(session: InferenceSession, feeds: Mapping[str, Any], name: str) -> ProgramView:
    """Run a session once on ``feeds``, and return what is seen; ``name`` is that of the model's file."""
    session.run(None, feeds)
    engine = session._wgpu
    model = engine.model
    assert model is not None, "the session is of a model"
    results = {port.name for port in session.get_outputs()}
    plans = engine.plans()
    profile = session.device.profile
    if engine.ran_steps or engine.last is None:
        shapes = {name: list(getattr(value, "shape", ())) for name, value in feeds.items()}
        full_precision: Mapping[str, str] = engine.program.full_precision_plans
    else:
        shapes, full_precision = dict(engine.last.key.to_json()), {}
    return ProgramView(
        tuple(session.placement()),
        tuple(session.stats.steps),
        tuple(session.stats.crossings),
        tuple(plans),
        profile,
        model_facts(model, shapes, plans[0], profile) if plans else {"name": name},
        tuple(_precision(plan, full_precision, results) for plan in plans) if model.options.half else (),
    )


#: Reason why float32 values at the interface of a plan stay float32
_OUTPUT = "an output of the model: it keeps its type"
_CROSSING = "it goes to another stage: there values keep the type that the model declares"


def _precision(plan: Plan, full_precision: Mapping[str, str], results: Collection[str]) -> dict[str, Any]:
    """Return what is float16 in a plan and what stays float32, and why; ``results`` are the model's outputs.

    Extends the plan's notes by the values that leave the plan; ``why`` explains a plan that is entirely float32.
    """
    notes = plan.notes.precision
    if notes is None:
        why = full_precision.get(plan.key, "it was compiled in full precision")
        return {"stored": "float32", "activations": 0, "weights": 0, "full_precision": [], "why": why}
    constant = {item.output for item in plan.constants}
    leaving = [
        {"node": "", "tensor": port.name, "why": _OUTPUT if port.name in results else _CROSSING}
        for port in plan.outputs
        if port.dtype == "float32" and port.name not in constant
    ]
    row: dict[str, Any] = encode(notes)
    return {**row, "full_precision": [*row["full_precision"], *leaving]}
