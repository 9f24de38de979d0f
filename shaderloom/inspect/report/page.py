"""The page: template, style and scripts of this folder, with the data embedded as base64 of gzip.

Equal data give equal bytes: gzip headers carry no time.  Nothing is loaded from elsewhere, which a content security
policy enforces.
"""

from __future__ import annotations

import base64
import gzip
import json
from importlib import resources
from typing import Any

from ...plans.placement import count_placements
from ...plans.profiling import PlanProfile
from ...runtime.execution.roofline import Roofline
from ..inspected_plan import InspectedPlan, size_rows
from .data import report_data, report_texts

#: In the order in which they use each other
SCRIPTS = ("base.js", "wgsl.js", "list.js", "graph.js", "details.js", "memory.js", "main.js")


def render_report(
    inspected: InspectedPlan,
    *,
    device: str = "",
    profile: PlanProfile | None = None,
    roofline: Roofline | None = None,
) -> str:
    """Render the report as one HTML document.  ``device`` is the name of the adapter, if there is one."""
    import jinja2

    data = report_data(inspected, profile, roofline)
    folder = resources.files(__package__)

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    safe = environment.filters["safe"]
    script = "\n".join(text(name) for name in SCRIPTS)
    return environment.from_string(text("page.html.j2")).render(
        facts=inspected.facts,
        summary=data["summary"],
        flops=_scaled(data["summary"]["flops"], ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP")),
        time="" if profile is None else _scaled(profile.nanoseconds, ("ns", "µs", "ms", "s")),
        device=device,
        identity=_identity(inspected, device),
        placements=inspected.placements,
        full_precision=data["full_precision"],
        placed=count_placements(inspected.placements),
        style=safe(text("style.css")),
        script=safe(f'"use strict";\n{script}'),
        data=_packed(data),
        texts=_packed(report_texts(inspected.plan)),
    )


def _packed(value: Any) -> str:
    content = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


def _identity(inspected: InspectedPlan, device: str) -> list[tuple[str, str]]:
    """Return the rows, label and value, that identify the report."""
    facts = inspected.facts
    profile = facts["profile"]
    rows = [(facts["kind"], facts["name"]), ("sha256", facts["sha256"]), ("plan key", facts["plan_key"])]
    rows += [(f"input {name}", "x".join(map(str, dims)) or "scalar") for name, dims in facts["shape_key"].items()]
    rows += size_rows(facts.get("dynamic", {}))
    if device:
        rows.append(("adapter", device))
    rows.append(("compiled for", f"{profile['driver']} ({profile['kind']})"))
    rows.append(("features", ", ".join(profile["features"]) or "none"))
    rows += [("option", f"{name} = {json.dumps(value)}") for name, value in sorted(facts["options"].items())]
    rows += [(f"version of {name}", str(version)) for name, version in facts["versions"].items()]
    rows += [(name, f"{limit:,}") for name, limit in profile["limits"].items()]
    return rows


def _scaled(value: float, units: tuple[str, ...]) -> str:
    unit = 0
    while value >= 1000 and unit < len(units) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {units[unit]}"
