"""Compile a model and record the graph after every pass: for ``inspect --show``, ``--after`` and ``--dump``.

The graphs listed for users are few; each is the graph after a pass.  Equal models, shapes, profiles and options give
equal texts in any process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..plans.describe import describe_groups, describe_plan
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.errors import InputError, unwritable
from ..runtime.plan.plan import Plan
from ..runtime.plan.record import record

if TYPE_CHECKING:
    from ..compiler.compilation import PassReport
    from ..compiler.ir.graph import Graph
    from ..compiler.remarks import Remark
    from ..model.model import Model


@record
class GraphText:
    """A graph as text, and the pass that produced it."""

    after: str
    text: str


@dataclass
class PassTrace:
    """The record of one compilation, pass by pass; ``plan`` is None if it stopped earlier."""

    graphs: list[GraphText] = field(default_factory=list)
    reports: list[PassReport] = field(default_factory=list)  #: what each pass did
    rewrites: list[dict[str, Any]] = field(default_factory=list)  #: rules that matched, and why some were refused
    groups: dict[str, Any] = field(default_factory=dict)  #: see :func:`~.describe.describe_groups`
    plan: Plan | None = None

    def after(self, name: str) -> GraphText:
        """Return the graph after a pass.  Raises :class:`InputError` if the pass did not run."""
        for graph in self.graphs:
            if graph.after == name:
                return graph
        ran = ", ".join(graph.after for graph in self.graphs)
        raise InputError(f"the pass '{name}' did not run", hint=f"those that ran are {ran}")

    def graph_at(self, name: str) -> GraphText:
        """Return the graph of a listing, ``graph``, ``canonical`` or ``layout``: after its last pass that ran."""
        from ..compiler.passes.pipeline import LAST_REWRITE, LOWERED, PIPELINE

        last = PIPELINE.position({"graph": "specialise", "canonical": LAST_REWRITE, "layout": LOWERED}[name])
        return [graph for graph in self.graphs if PIPELINE.position(graph.after) <= last][-1]


def trace_passes(
    model: Model, shapes: Mapping[str, Sequence[int]], profile: DeviceProfile, *, until: str | None = None
) -> PassTrace:
    """Compile ``model`` for these input shapes, up to the pass ``until``, and record every graph.

    The disk cache is not used.  Raises the errors of the compiler, and :class:`InputError` if there is no such pass.
    """
    from ..compiler.driver import compile_unit
    from ..compiler.passes.pipeline import LOWERED, PIPELINE

    trace = PassTrace()
    remarks: list[Remark] = []

    def keep(report: PassReport, graph: Graph) -> None:
        trace.graphs.append(GraphText(report.name, str(graph)))
        trace.reports.append(report)

    if model.calibration is not None and model.calibration.is_due:
        model.calibrate_on_host({name: tuple(shape) for name, shape in shapes.items()}, profile)
    compilation = replace(model.compilation(profile), observer=keep, remarks=remarks)
    lowering = compile_unit(model.unit(shapes), compilation, until=until)
    trace.rewrites = [
        {
            "rule": item.rule,
            "root": item.root,
            "origins": [str(origin) for origin in item.origins],
            "refused": item.refused,
        }
        for item in remarks
    ]
    if until is None or PIPELINE.position(until) >= PIPELINE.position(LOWERED):
        trace.groups = describe_groups(lowering)
    if until is None:
        trace.plan = lowering.plan
    return trace


def dump(trace: PassTrace, folder: Path) -> list[Path]:
    """Write a numbered file for every pass, and the plan, into ``folder``; return their paths.

    Equal traces give equal files.

    Raises :class:`InputError` if the folder cannot be written or holds files of another kind.
    """
    texts: list[tuple[str, str]] = [(f"{graph.after}.txt", graph.text + "\n") for graph in trace.graphs]
    texts.append(("rewrites.json", _json(trace.rewrites)))
    texts.append(("fused.json", _json(trace.groups)))
    if trace.plan is not None:
        texts.append(("plan.json", _json(describe_plan(trace.plan))))
        texts += [(f"{kernel.template}-{kernel.id}.wgsl", kernel.wgsl) for kernel in trace.plan.kernels]
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
        raise unwritable(folder, error) from error
    return written


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
