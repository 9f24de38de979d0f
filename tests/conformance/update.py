"""Rewriting ``expected.toml``: groups keep their reasons, cases go to the group that says why they went as they did."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable

from .expected import FILE, KINDS, Group, groups
from .running import Outcome


def update(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Sort the cases that have an outcome into the groups; gives those for which there is no group.

    A case goes to the first group of its kind whose ``error`` is part of the case's error.  Groups without an ``error``
    keep their cases, as long as these still go as the group says.
    """
    found = {outcome.key: outcome for outcome in outcomes}
    lists: dict[int, list[str]] = {number: [] for number in range(len(groups()))}
    left = {key: outcome for key, outcome in found.items() if outcome.kind not in ("wgpu", "missing")}
    for number, group in enumerate(groups()):
        for key in group.cases:
            stays = key not in found or group.device or group.kind == "unsound" or found[key].kind in KINDS[group.kind]
            if stays and (key not in found or not group.error or group.error in found[key].reason):
                lists[number].append(key)
                left.pop(key, None)
    unsorted = []
    for key, outcome in left.items():
        fitting = [number for number, group in enumerate(groups()) if _fits(group, outcome)]
        if fitting:
            lists[fitting[0]].append(key)
        else:
            unsorted.append(outcome)
    kept = [dataclasses.replace(group, cases=tuple(sorted(lists[n]))) for n, group in enumerate(groups())]
    FILE.write_text("\n".join(_text(group) for group in kept if group.cases), encoding="utf-8")
    return unsorted


def _fits(group: Group, outcome: Outcome) -> bool:
    return (
        bool(group.error) and not group.device and outcome.kind in KINDS[group.kind] and group.error in outcome.reason
    )


def _text(group: Group) -> str:
    lines = [f"[[{group.kind}]]", f"reason = {json.dumps(group.reason)}"]
    if group.device:
        lines.append(f"device = {json.dumps(group.device)}")
    if group.error:
        lines.append(f"error = {json.dumps(group.error)}")
    lines += ["cases = [", *(f"    {json.dumps(key)}," for key in group.cases), "]", ""]
    return "\n".join(lines)
