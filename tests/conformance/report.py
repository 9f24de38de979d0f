"""The page ``docs/guide/conformance.md``: tables of what passes where.

It is written from the results in the repository alone.  The first device is that of the detailed tables; the others are
shown beside it.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from . import expected
from .models import real_models
from .pool import Record
from .results import Results
from .running import Outcome

TITLES = {
    "node": "Operator cases of onnx",
    "models": "Small models of onnx",
    "web": "Operator cases of a browser runtime",
    "real": "Whole models",
}
COLUMNS = ("wgpu", "cpu", "differs", "refused", "failed")


def column(kind: str) -> str:
    return "differs" if kind == "wrong" else kind


def write(devices: Sequence[Results]) -> str:
    """The page: for each device the cases that have a result, and details of the first."""
    main = devices[0]
    parts = [
        _head(devices),
        _totals(devices),
        *map(_models, devices),
        _devices(devices),
        _exceptions(main),
        f"## By element type\n\nOn {main.device}. A case counts for each type of its inputs and outputs.\n\n"
        + _table("type", main),
        f"## By operator\n\nOn {main.device}. A model of several operators counts for the one that it is about.\n\n"
        + _table("operator", main),
    ]
    return "\n\n".join(map(_wrapped, "\n\n".join(part for part in parts if part).split("\n\n"))) + "\n"


def _wrapped(paragraph: str) -> str:
    """Wrap prose; tables, lists and titles stay as they are."""
    if paragraph.startswith(("|", "-", "#")):
        return paragraph
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)


def _head(devices: Sequence[Results]) -> str:
    rows = ["| device | suites | date | packages | sources |", "|---|---|---|---|---|"]
    for results in devices:
        groups: dict[tuple[str, str, str], list[str]] = {}
        for suite in TITLES:
            if suite in results.parts:
                part = results.parts[suite]
                packages = ", ".join(f"{name} {number}" for name, number in part["packages"].items())
                groups.setdefault((part["date"], packages, part["fingerprint"][:12]), []).append(TITLES[suite])
        rows += [f"| {results.device} | {', '.join(suites)} | {' | '.join(key)} |" for key, suites in groups.items()]
    return (
        "# Conformance\n\n"
        "Written by `./dev conformance`; do not edit. Suites of cases that others wrote, run through "
        "`shaderloom.backend`, and whole models beside onnxruntime on the CPU.\n\n" + "\n".join(rows) + "\n\n"
        '`wgpu`: passed with `providers=["wgpu"]`, every node on the device or folded while compiling. `cpu`: refused '
        'by the device with a reason, and passed with `providers=["wgpu", "cpu"]`. `refused`: by both. `differs`: '
        "results that are not those of the suite; each one is explained below. `drawn`: random numbers, which may "
        "agree by chance. `failed`: anything else.\n\n"
        "The list of exceptions is a file of the tests (`tests/conformance/expected.toml`): a case that passes or "
        "fails against it fails the tests."
    )


def _totals(devices: Sequence[Results]) -> str:
    rows = [f"| device | suite | cases | {' | '.join(COLUMNS)} |", "|---|---|" + "---:|" * (len(COLUMNS) + 1)]
    for results in devices:
        for suite, title in TITLES.items():
            part = results.parts.get(suite)
            if part is not None:
                counts = Counter({column(kind): len(names) for kind, names in part["others"].items()})
                counts["wgpu"] = part["cases"] - counts.total()
                rows.append(f"| {results.device} | {title} | {part['cases']} | {_numbers(counts)} |")
    return "## Suites\n\n" + "\n".join(rows)


def _numbers(counts: Mapping[str, int]) -> str:
    return " | ".join(str(counts.get(name, 0) or "") for name in COLUMNS)


# -- whole models ------------------------------------------------------------------------------------------------------


def _models(results: Results) -> str:
    records = results.parts["real"]["models"] if "real" in results.parts else []
    rows = [_model_row(record) for record in records]
    if not rows:
        return ""
    ran = {record["key"] for record in records}
    missing = [model.name for model in real_models() if f"real/{model.name}" not in ran]
    text = (
        f"## Whole models on {results.device}\n\n"
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


def _devices(devices: Sequence[Results]) -> str:
    """What went otherwise on another device than on the first."""
    if len(devices) == 1:
        return ""
    main, rows = devices[0], []
    first = main.outcomes()
    for results in devices[1:]:
        other = results.outcomes()
        both = results.parts.keys() & main.parts.keys()
        for key in sorted(key for key in first.keys() | other.keys() if key.partition("/")[0] in both):
            here, there = (each.get(key, Outcome(key, "wgpu")) for each in (first, other))
            if here.kind != there.kind:
                groups = (expected.by_case(each.device).get(key) for each in (results, main))
                group = next((each for each in groups if each is not None), None)
                why = _cell(group.reason if group else there.reason or here.reason)
                rows.append(f"| {results.device} | `{key}` | {column(there.kind)} | {column(here.kind)} | {why} |")
    text = f"## Devices that differ from {main.device}\n\n"
    if not rows:
        return text + "None: every case went the same way on all of them."
    return text + f"| device | case | there | {main.device} | reason |\n|---|---|---|---|---|\n" + "\n".join(rows)


def _exceptions(main: Results) -> str:
    outcomes = main.outcomes()
    rows = ["## Exceptions", "", "| cases | kind | reason | examples |", "|---:|---|---|---|"]
    order = list(expected.KINDS)
    mine = [group for group in expected.groups() if group.device in main.device]
    for group in sorted(mine, key=lambda group: (order.index(group.kind), -len(group.cases))):
        found = [key for key in group.cases if key in outcomes or group.kind == "unsound"]
        if found:
            kind = {"on_cpu": "cpu"}.get(group.kind, group.kind)
            names = ", ".join(f"`{key.partition('/')[2]}`" for key in found[:3])
            rows.append(f"| {len(found)} | {kind} | {group.reason} | {names} |")
    other = [outcomes[key] for key in sorted(outcomes) if expected.unexpected(outcomes[key], main.device)]
    if other:
        rows += ["", "Not as expected:", ""]
        rows += [f"- `{each.key}`: {each.kind}: {each.reason}" for each in other]
    return "\n".join(rows)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _table(what: str, results: Results) -> str:
    counts: dict[str, Counter[str]] = {}
    for part in results.parts.values():
        for label, kinds in part[f"{what}s"].items():
            counts.setdefault(label, Counter()).update({column(kind): number for kind, number in kinds.items()})
    rows = [f"| {what} | cases | {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) + 1)]
    rows += [
        f"| {label} | {counts[label].total()} | {_numbers(counts[label])} |" for label in sorted(counts, key=str.lower)
    ]
    return "\n".join(rows)
