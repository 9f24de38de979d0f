"""``shaderloom inspect --html``: the report in one file, with measured times on request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.plan.errors import InputError, unwritable

if TYPE_CHECKING:
    from ..inspect.inspected_plan import InspectedPlan
    from ..session.session import InferenceSession


def write_report(
    path: Path,
    inspected: InspectedPlan,
    session: InferenceSession | None = None,
    feeds: Mapping[str, Any] | None = None,
) -> None:
    """Write the report of ``inspected``; with a session its calls are timed on these inputs.

    Raises :class:`InputError` if the file cannot be written or the session runs another plan.
    """
    from ..inspect.report.page import render_report
    from ..plans.profiling import summarise_stages
    from ..runtime.execution.roofline import measure_roofline

    if session is None:
        text = render_report(inspected)
    else:
        feeds = feeds or {}
        session.run(None, feeds)  # the first run includes one-time costs
        key = inspected.plan.key
        runs = [[run for run in session.profile_stages(feeds) if run[0].key == key] for _ in range(3)]
        if not all(runs):
            raise InputError("the session runs another plan than the one that is inspected", hint="leave --profile out")
        roofline = measure_roofline(session.device)
        result = summarise_stages(runs, roofline)
        text = render_report(inspected, device=session.device.name, profile=result, roofline=roofline)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error
