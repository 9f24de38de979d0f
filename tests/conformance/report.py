"""The page ``docs/guide/conformance.md``: tables of what passes where.

The first store is the device of the detailed tables; the others are shown beside it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from . import expected
from .cases import ConformanceCase
from .pool import Record, outcome_of
from .running import Outcome
from .store import Store

TITLES = {
    "node": "Operator cases of onnx",
    "models": "Small models of onnx",
    "web": "Operator cases of a browser runtime",
    "real": "Whole models",
}
COLUMNS = ("wgpu", "cpu", "differs", "refused", "failed")
Cases = Sequence[ConformanceCase]
Outcomes = Mapping[str, Outcome]


def column(outcome: Outcome) -> str:
    return "differs" if outcome.kind == "wrong" else outcome.kind


def write(cases: Cases, stores: Sequence[Store]) -> str:
    """The page: for each device the cases that have a result, and details of the first."""
    main = stores[0]
    outcomes = _outcomes(main)
    done = [case for case in cases if case.key in outcomes and case.suite != "real"]
    parts = [
        _head(stores),
        _totals(cases, stores),
        *(_models(cases, store) for store in stores),
        _devices(cases, stores),
        _exceptions(cases, outcomes, main.device),
        f"## By element type\n\nOn {main.device}. A case counts for each type of its inputs and outputs.\n\n"
        + _table("type", ((kind, case) for case in done for kind in case.types), outcomes),
        f"## By operator\n\nOn {main.device}. A model of several operators counts for the one that it is about.\n\n"
        + _table("operator", ((case.operator, case) for case in done if case.suite in ("node", "web")), outcomes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _outcomes(store: Store) -> dict[str, Outcome]:
    return {key: outcome_of(record) for key, record in store.records.items() if record["kind"] != "missing"}


def _head(stores: Sequence[Store]) -> str:
    rows = ["| device | date | packages | sources |", "|---|---|---|---|"]
    for store in stores:
        packages = ", ".join(f"{name} {number}" for name, number in store.head.get("packages", {}).items())
        rows.append(f"| {store.device} | {store.head['date']} | {packages} | {store.head['fingerprint'][:12]} |")
    return (
        "# Conformance\n\n"
        "Written by `./dev conformance`; do not edit. Suites of cases that others wrote, run through "
        "`shaderloom.backend`, and whole models beside onnxruntime on the CPU.\n\n" + "\n".join(rows) + "\n\n"
        '`wgpu`: passed with `providers=["wgpu"]`, every node on the device or folded while compiling. `cpu`: refused '
        'by the device with a reason, and passed with `providers=["wgpu", "cpu"]`. `refused`: by both. `differs`: '
        "results that are not those of the suite; each one is explained below. `failed`: anything else.\n\n"
        "The list of exceptions is a file of the tests (`tests/conformance/expected.toml`): a case that passes or "
        "fails against it fails the tests."
    )


def _totals(cases: Cases, stores: Sequence[Store]) -> str:
    rows = [f"| device | suite | cases | {' | '.join(COLUMNS)} |", "|---|---|" + "---:|" * (len(COLUMNS) + 1)]
    for store in stores:
        outcomes = _outcomes(store)
        for suite, title in TITLES.items():
            mine = [outcomes[case.key] for case in cases if case.suite == suite and case.key in outcomes]
            if mine:
                counts = Counter(map(column, mine))
                numbers = " | ".join(str(counts[name] or "") for name in COLUMNS)
                rows.append(f"| {store.device} | {title} | {len(mine)} | {numbers} |")
    return "## Suites\n\n" + "\n".join(rows)


# -- whole models ------------------------------------------------------------------------------------------------------


def _models(cases: Cases, store: Store) -> str:
    records = [store.records[case.key] for case in cases if case.suite == "real" and case.key in store.records]
    rows = [_model_row(record) for record in records if record["kind"] != "missing"]
    if not rows:
        return ""
    ran = {record["key"] for record in records if record["kind"] != "missing"}
    missing = [case.name for case in cases if case.suite == "real" and case.key not in ran]
    text = (
        f"## Whole models on {store.device}\n\n"
        "Nodes of the file by where they ran, kernels and their calls in a run, the largest error over the largest "
        "output of onnxruntime (its graph optimisations off) in float32 and with half-precision storage, and how many "
        "final decisions agree, in the same order.\n\n"
        "| model | nodes | wgpu | cpu | folded | kernels | calls | f32 | f16 | decisions | f16 |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n" + "\n".join(rows)
    )
    return text + (f"\n\nNot run there: {', '.join(missing)}." if missing else "")


def _model_row(record: Record) -> str:
    name, facts = record["key"].partition("/")[2], record.get("facts", {})
    if "nodes" not in facts:
        return f"| {name} | {record['kind']}: {record['reason']} |" + " |" * 9
    nodes = facts["nodes"]
    cells = [sum(nodes.values()), *(nodes[provider] or "" for provider in ("wgpu", "cpu", "folded"))]
    cells += [facts.get("kernels", ""), facts.get("calls", "")]
    cells += [f"{facts[each]:.1e}" if each in facts else "fails" for each in ("float32", "float16")]
    cells += [facts.get(f"decisions_{each}", "") for each in ("float32", "float16")]
    return f"| {name} | {' | '.join(map(str, cells))} |"


# -- exceptions --------------------------------------------------------------------------------------------------------


def _devices(cases: Cases, stores: Sequence[Store]) -> str:
    """What went otherwise on another device than on the first."""
    first = _outcomes(stores[0])
    rows = []
    for store in stores[1:]:
        for key, outcome in _outcomes(store).items():
            if key in first and column(first[key]) != column(outcome):
                groups = (expected.by_case(each.device).get(key) for each in (store, stores[0]))
                group = next((each for each in groups if each is not None), None)
                why = group.reason if group else outcome.reason or first[key].reason
                rows.append(f"| {store.device} | `{key}` | {column(outcome)} | {column(first[key])} | {_cell(why)} |")
    if len(stores) == 1:
        return ""
    text = f"## Devices that differ from {stores[0].device}\n\n"
    if not rows:
        return text + "None: every case went the same way on all of them."
    return text + f"| device | case | there | {stores[0].device} | reason |\n|---|---|---|---|---|\n" + "\n".join(rows)


def _exceptions(cases: Cases, outcomes: Outcomes, device: str) -> str:
    present = {case.key for case in cases if case.key in outcomes}
    rows = ["## Exceptions", "", "| cases | kind | reason | examples |", "|---:|---|---|---|"]
    order = list(expected.KINDS)
    mine = [group for group in expected.groups() if group.device in device]
    for group in sorted(mine, key=lambda group: (order.index(group.kind), -len(group.cases))):
        found = [key for key in group.cases if key in present or group.kind == "unsound"]
        if found:
            kind = {"on_cpu": "cpu"}.get(group.kind, group.kind)
            names = ", ".join(f"`{key.partition('/')[2]}`" for key in found[:3])
            rows.append(f"| {len(found)} | {kind} | {group.reason} | {names} |")
    other = [outcomes[key] for key in sorted(present) if expected.unexpected(outcomes[key], device)]
    if other:
        rows += ["", "Not as expected:", ""]
        rows += [f"- `{each.key}`: {each.kind}: {each.reason}" for each in other]
    return "\n".join(rows)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _table(what: str, pairs: Iterable[tuple[str, ConformanceCase]], outcomes: Outcomes) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for label, case in pairs:
        counts[label][column(outcomes[case.key])] += 1
    rows = [f"| {what} | cases | {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) + 1)]
    for label in sorted(counts, key=str.lower):
        numbers = " | ".join(str(counts[label][name] or "") for name in COLUMNS)
        rows.append(f"| {label} | {counts[label].total()} | {numbers} |")
    return "\n".join(rows)
