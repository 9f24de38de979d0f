"""Differences between two compilations: calls added, removed and changed, with the lines of their shaders.

Works on descriptions (:func:`~.describe.describe_plan` with texts), so that a description which another version wrote
to a file can be compared with what this version compiles.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from ..runtime.plan.record import record

Description = Mapping[str, Any]

#: Identity of a call in two plans: the ONNX nodes, and a count where several calls have the same
Identity = tuple[tuple[str, ...], int]

#: Fields of a kernel's description whose changes are shown, besides its text
KERNEL_FIELDS = ("template", "config", "workgroup", "workgroup_bytes", "bindings", "features")
CALL_FIELDS = ("grid", "iterations", "flops", "bytes", "ranges")


@record(slots=False)
class ChangedCall:
    """A call of the same ONNX nodes that differs between the plans; positions and kernels before and after."""

    origins: tuple[str, ...]
    before: int
    after: int
    kernel_before: str
    kernel_after: str
    fields: dict[str, tuple[Any, Any]]  #: what differs besides the text
    text: tuple[str, ...]  #: a unified diff of the WGSL; empty if the kernels are the same

    @property
    def is_kernel_changed(self) -> bool:
        return self.kernel_before != self.kernel_after


@record(slots=False)
class PlanDifference:
    """``added`` and ``removed``: descriptions of calls with their positions; ``facts``: other differing fields."""

    added: list[tuple[int, Description]] = field(default_factory=list)
    removed: list[tuple[int, Description]] = field(default_factory=list)
    changed: list[ChangedCall] = field(default_factory=list)
    facts: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.changed or self.facts)


def diff_plans(before: Description, after: Description) -> PlanDifference:
    """Compare two descriptions of plans, call by call."""
    old, new = dict(_identified(before)), dict(_identified(after))
    result = PlanDifference()
    result.removed.extend((position, before["call_list"][position]) for key, position in old.items() if key not in new)
    result.added.extend((position, after["call_list"][position]) for key, position in new.items() if key not in old)
    kernels_before, kernels_after = _kernels(before), _kernels(after)
    for key, position in new.items():
        if key not in old:
            continue
        changed = _compare(before, after, old[key], position, kernels_before, kernels_after)
        if changed is not None:
            result.changed.append(changed)
    for name in ("inputs", "outputs", "arenas", "symbols", "planned_bytes", "weight_bytes", "weight_transforms"):
        if before.get(name) != after.get(name):
            result.facts[name] = (before.get(name), after.get(name))
    return result


def _identified(description: Description) -> Iterator[tuple[Identity, int]]:
    seen: dict[tuple[str, ...], int] = defaultdict(int)
    for position, call in enumerate(description["call_list"]):
        origins = tuple(call["origins"])
        yield (origins, seen[origins]), position
        seen[origins] += 1


def _kernels(description: Description) -> dict[str, Description]:
    return {kernel["id"]: kernel for kernel in description["kernels"]}


def _compare(
    before: Description,
    after: Description,
    old_position: int,
    new_position: int,
    kernels_before: Mapping[str, Description],
    kernels_after: Mapping[str, Description],
) -> ChangedCall | None:
    old, new = before["call_list"][old_position], after["call_list"][new_position]
    old_kernel, new_kernel = kernels_before[old["kernel"]], kernels_after[new["kernel"]]
    fields = {name: (old[name], new[name]) for name in CALL_FIELDS if old[name] != new[name]}
    fields |= {
        name: (old_kernel[name], new_kernel[name]) for name in KERNEL_FIELDS if old_kernel[name] != new_kernel[name]
    }
    if old_kernel["key"] == new_kernel["key"] and not fields:
        return None
    text: tuple[str, ...] = ()
    if old_kernel["key"] != new_kernel["key"]:
        lines = difflib.unified_diff(
            old_kernel.get("wgsl", "").splitlines(),
            new_kernel.get("wgsl", "").splitlines(),
            f"{old_kernel['id']} ({old_kernel['template']})",
            f"{new_kernel['id']} ({new_kernel['template']})",
            lineterm="",
        )
        text = tuple(lines)
    return ChangedCall(
        tuple(new["origins"]), old_position, new_position, old_kernel["id"], new_kernel["id"], fields, text
    )


def to_json(difference: PlanDifference) -> dict[str, Any]:
    """Return the difference as JSON values."""

    def rows(calls: list[tuple[int, Description]]) -> list[dict[str, Any]]:
        return [
            {"call": position, "kernel": call["kernel"], "label": call["label"], "origins": list(call["origins"])}
            for position, call in calls
        ]

    return {
        "added": rows(difference.added),
        "removed": rows(difference.removed),
        "changed": [
            {
                "origins": list(call.origins),
                "calls": [call.before, call.after],
                "kernels": [call.kernel_before, call.kernel_after],
                "fields": {name: list(pair) for name, pair in call.fields.items()},
                "diff": list(call.text),
            }
            for call in difference.changed
        ],
        "facts": {name: list(pair) for name, pair in difference.facts.items()},
    }
