"""What is expected of cases that do not simply pass on a device: ``expected.toml``, an explicit list with reasons.

A case that is not in the list must pass with wgpu alone.  The list has groups:

``on_cpu``     a device refuses the case, for the group's reason, and it passes with cpu behind it;
``refused``    both refuse;
``differs``    the results differ from those of the suite, which the reason explains;
``drawn``      the host draws the results anew in every session, and they may be those of the suite by chance;
``unsound``    nothing can pass the case; it is not run.

A group with ``device``, a part of a device's name, is of that device alone.  ``error`` of a group is part of the error
of each of its cases, so that a case cannot be refused for another reason.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .running import Outcome

FILE = Path(__file__).with_name("expected.toml")
#: Kind of a group -> kinds of the outcomes of its cases
KINDS = {
    "on_cpu": ("cpu",),
    "refused": ("refused",),
    "differs": ("wrong",),
    "drawn": ("wrong", "cpu"),
    "unsound": (),
}


@dataclass(frozen=True)
class Group:
    kind: str
    reason: str
    error: str
    cases: tuple[str, ...]  #: "suite/name"
    device: str = ""


@functools.cache
def groups() -> tuple[Group, ...]:
    return tuple(_read())


def _read() -> Iterator[Group]:
    with FILE.open("rb") as file:
        for kind, entries in tomllib.load(file).items():
            assert kind in KINDS, f"no kind {kind} of groups"
            for entry in entries:
                yield Group(
                    kind, entry["reason"], entry.get("error", ""), tuple(entry["cases"]), entry.get("device", "")
                )


@functools.cache
def by_case(device: str = "") -> dict[str, Group]:
    """The group of each case that has one, on a device of this name."""
    found: dict[str, Group] = {}
    for group in groups():
        if group.device in device:
            for key in group.cases:
                assert key not in found, f"{key} is listed twice"
                found[key] = group
    return found


def unexpected(outcome: Outcome, device: str = "") -> str | None:
    """What is not as expected, or None.  A model that is not available is no surprise: its row is missing."""
    if outcome.kind == "missing":
        return None
    group = by_case(device).get(outcome.key)
    text = f"{outcome.key} is {outcome.kind}: {outcome.reason}" if outcome.reason else f"{outcome.key}: {outcome.kind}"
    if group is None:
        return None if outcome.kind == "wgpu" else text
    if group.kind == "unsound":
        return None
    if outcome.kind not in KINDS[group.kind]:
        return f"{text}; the list says {group.kind}: {group.reason}"
    if group.error not in outcome.reason:
        return f"{text}; the error should have '{group.error}'"
    return None
