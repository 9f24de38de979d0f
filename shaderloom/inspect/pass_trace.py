"""Compile a model and keep what every stage left behind: for ``inspect --stage``, ``--after`` and ``--dump``.

Stages that people choose from are few; the steps in between have the names of the compiler's passes.  Equal models,
shapes, profiles and options give equal texts in any process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..plans.describe import describe_groups, describe_plan
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.errors import InputError
from ..runtime.plan.plan import Plan

if TYPE_CHECKING:
    from ..compiler.driver import Lowered
    from ..compiler.ir.graph import Graph
    from ..compiler.rewriting.rules import Application
    from ..model.model import Model

#: Steps of the compiler that stand for a stage; "canonical" is what the last rewriting pass leaves
FIRST_STEP, LAST_STEP = "specialise", "layout"


@dataclass(frozen=True, slots=True)
class Step:
    """A pass or stage of the compiler, and the graph after it as text."""

    name: str
    text: str


@dataclass
class Trail:
    """What one compilation left behind, stage by stage; ``plan`` is None if it stopped at the fused groups."""

    steps: list[Step] = field(default_factory=list)
    rewrites: list[dict[str, Any]] = field(default_factory=list)  #: rules that matched, and why some were refused
    groups: dict[str, Any] = field(default_factory=dict)  #: see :func:`~.describe.describe_groups`
    plan: Plan | None = None

    def after(self, name: str) -> Step:
        """The last step of this name.  Raises :class:`InputError` if there is none."""
        found = [step for step in self.steps if step.name == name]
        if not found:
            names = ", ".join(dict.fromkeys(step.name for step in self.steps))
            raise InputError(f"no pass '{name}' ran", hint=f"the passes are {names}")
        return found[-1]

    def stage(self, name: str) -> Step:
        """The graph of a stage: ``graph``, ``canonical`` or ``layout``."""
        if name == "graph":
            return self.after(FIRST_STEP)
        if name == "layout":
            return self.after(LAST_STEP)
        from ..compiler.passes.pipeline import PASS_NAMES

        ran = [step for step in self.steps if step.name in PASS_NAMES or step.name in (FIRST_STEP, "expand")]
        return ran[-1]


def follow(
    model: Model,
    shapes: Mapping[str, Sequence[int]],
    profile: DeviceProfile,
    options: Mapping[str, Any] | None = None,
    *,
    with_plan: bool = True,
) -> Trail:
    """Compile ``model`` for these input shapes and keep every stage; no disk cache is asked."""
    from ..compiler.binding.shape_binding import bind_shapes, specialise
    from ..compiler.driver import CompileOptions, lower, make_plan

    trail = Trail()
    trace: list[Application] = []

    def keep(name: str, graph: Graph) -> None:
        trail.steps.append(Step(name, graph.text()))

    if model.calibration is not None and model.calibration.is_new:
        model.calibrate_on_host({name: tuple(shape) for name, shape in shapes.items()}, profile)
    chosen = CompileOptions.of({**model.compiler_options, **(options or {})})
    bound = bind_shapes(model.imported, shapes, model.dynamic)
    lowered: Lowered = lower(
        specialise(model.imported, bound.shapes),
        profile,
        chosen,
        on_stage=keep,
        trace=trace,
        choices=model.choices(profile),
    )
    trail.rewrites = [
        {
            "rule": item.rule,
            "root": item.root,
            "origins": [str(origin) for origin in item.origins],
            "refused": item.refused,
        }
        for item in trace
    ]
    trail.groups = describe_groups(lowered)
    if with_plan:
        trail.plan = make_plan(model.imported.graph.nodes, bound.symbols, profile, chosen, lowered)
    return trail


def dump(trail: Trail, folder: Path) -> list[Path]:
    """Write numbered files of every stage into ``folder``; gives their paths.  Equal trails give equal files.

    Raises :class:`InputError` if the folder cannot be written or holds files of another kind.
    """
    texts: list[tuple[str, str]] = [(f"{step.name}.txt", step.text + "\n") for step in trail.steps]
    texts.append(("rewrites.json", _json(trail.rewrites)))
    texts.append(("fused.json", _json(trail.groups)))
    if trail.plan is not None:
        texts.append(("plan.json", _json(describe_plan(trail.plan))))
        texts += [(f"{kernel.template}-{kernel.id}.wgsl", kernel.wgsl) for kernel in trail.plan.kernels]
    digits = len(str(len(texts) - 1))
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"the folder '{folder}' is not empty", hint="name a new one")
        for number, (name, text) in enumerate(texts):
            path = folder / f"{number:0{digits}}-{name}"
            path.write_text(text, encoding="utf-8", newline="\n")
            written.append(path)
    except OSError as error:
        raise InputError(f"cannot write to '{folder}': {error.strerror or error}", hint="name a new folder") from error
    return written


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
