"""The page ``docs/conformance.md``: tables of what passes where."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version

from . import expected
from .cases import ConformanceCase
from .running import Outcome

TITLES = {
    "node": "Operator cases of onnx",
    "models": "Small models of onnx",
    "web": "Operator cases of a browser runtime",
    "real": "Whole models",
}
COLUMNS = ("wgpu", "cpu", "differs", "refused", "failed")


def column(outcome: Outcome) -> str:
    return "differs" if outcome.kind == "wrong" else outcome.kind


def write(cases: Sequence[ConformanceCase], outcomes: Mapping[str, Outcome], device: str) -> str:
    """The page, for the cases that have an outcome."""
    done = [case for case in cases if case.key in outcomes]
    parts = [
        _head(done, outcomes, device),
        _totals(done, outcomes),
        _exceptions(done, outcomes),
        "## By element type\n\nA case counts for each type of its inputs and outputs.\n\n"
        + _table("type", ((kind, case) for case in done for kind in case.types), outcomes),
        "## By operator\n\nA model of several operators counts for the one that it is about.\n\n"
        + _table("operator", ((case.operator, case) for case in done if case.suite in ("node", "web")), outcomes),
    ]
    return "\n\n".join(parts) + "\n"


def _head(cases: Sequence[ConformanceCase], outcomes: Mapping[str, Outcome], device: str) -> str:
    return (
        "# Conformance\n\n"
        f"What `./dev conformance` found on **{device}**, with onnx {version('onnx')} and wgpu {version('wgpu')}: "
        "suites of cases that others wrote, run through `shaderloom.backend`.\n\n"
        '`wgpu`: passed with `providers=["wgpu"]`, every node on the device or folded while compiling. `cpu`: refused '
        'by the device with a reason, and passed with `providers=["wgpu", "cpu"]`. `refused`: by both. `differs`: '
        "results that are not those of the suite; each one is explained below. `failed`: anything else.\n\n"
        "The list of exceptions is a file of the tests (`tests/conformance/expected.toml`): a case that passes or "
        "fails against it fails the tests."
    )


def _totals(cases: Sequence[ConformanceCase], outcomes: Mapping[str, Outcome]) -> str:
    return "## Suites\n\n" + _table("suite", ((TITLES[case.suite], case) for case in cases), outcomes, ordered=False)


def _exceptions(cases: Sequence[ConformanceCase], outcomes: Mapping[str, Outcome]) -> str:
    present = {case.key for case in cases}
    rows = ["## Exceptions", "", "| cases | kind | reason | examples |", "|---:|---|---|---|"]
    for group in sorted(
        expected.groups(), key=lambda group: (list(expected.KINDS).index(group.kind), -len(group.cases))
    ):
        found = [key for key in group.cases if key in present or group.kind == "unsound"]
        if found:
            kind = {"on_cpu": "cpu"}.get(group.kind, group.kind)
            names = ", ".join(f"`{key.partition('/')[2]}`" for key in found[:3])
            rows.append(f"| {len(found)} | {kind} | {group.reason} | {names} |")
    other = [outcomes[key] for key in sorted(present) if expected.unexpected(outcomes[key])]
    if other:
        rows += ["", "Not as expected:", ""]
        rows += [f"- `{each.key}`: {each.kind}: {each.reason}" for each in other]
    return "\n".join(rows)


def _table(
    what: str,
    pairs: Iterable[tuple[str, ConformanceCase]],
    outcomes: Mapping[str, Outcome],
    *,
    ordered: bool = True,
) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for label, case in pairs:
        counts[label][column(outcomes[case.key])] += 1
    labels = sorted(counts, key=str.lower) if ordered else list(counts)
    rows = [f"| {what} | cases | {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) + 1)]
    for label in labels:
        numbers = " | ".join(str(counts[label][name] or "") for name in COLUMNS)
        rows.append(f"| {label} | {counts[label].total()} | {numbers} |")
    return "\n".join(rows)
