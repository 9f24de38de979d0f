"""Results in the repository, from which the page is written: a file for each device, with a part for each suite.

A part has its date, packages and sources, counts of cases by kind, type and operator, and the names of the cases that
did not simply pass on the device.  Running a suite on a device replaces that part alone.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import expected
from .cases import SUITES, ConformanceCase
from .pool import Record, outcome_of
from .running import Outcome
from .store import Store

FOLDER = Path(__file__).with_name("results")
Part = dict[str, Any]


class Results:
    """Results of one device: its name, and the parts by suite."""

    def __init__(self, path: Path) -> None:
        self.path = path
        stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self.device: str = stored.get("device", "")
        self.parts: dict[str, Part] = stored.get("suites", {})

    @staticmethod
    def of_device(device: str, folder: Path = FOLDER) -> Results:
        """The results of the device with this name, which may be none yet."""
        words = "".join(letter if letter.isalnum() else " " for letter in device.partition("(")[0].lower()).split()
        results = Results(folder / f"{'-'.join(word for word in words if not word.isdigit())}.json")
        results.device = device
        return results

    @staticmethod
    def every(folder: Path = FOLDER) -> list[Results]:
        return [Results(path) for path in sorted(folder.glob("*.json"))]

    def replace(self, suite: str, cases: Sequence[ConformanceCase], store: Store) -> None:
        """Store the results of a suite in place of those that there are."""
        self.parts[suite] = _part(cases, store)
        self.path.parent.mkdir(exist_ok=True)
        self.write()

    def write(self) -> None:
        """Write the file, a line for each part."""
        lines = ",\n".join(f'"{suite}": {json.dumps(self.parts[suite])}' for suite in SUITES if suite in self.parts)
        text = f'{{"device": {json.dumps(self.device)}, "suites": {{\n{lines}\n}}}}\n'
        self.path.write_text(text, encoding="utf-8")

    def outcomes(self) -> dict[str, Outcome]:
        """Those that are not wgpu, by key; the reason of one that is expected is the error that it was to have."""
        groups = expected.by_case(self.device)
        found = {}
        for suite, part in self.parts.items():
            for kind, names in part["others"].items():
                for key in (f"{suite}/{name}" for name in names):
                    error = groups[key].error if key in groups else ""
                    found[key] = Outcome(key, kind, part["unexpected"].get(key, error))
            for key in set(part["unexpected"]).difference(found):
                found[key] = Outcome(key, "wgpu", part["unexpected"][key])
        return found


def _part(cases: Sequence[ConformanceCase], store: Store) -> Part:
    ran = [
        (case, outcome_of(store.records[case.key])) for case in cases if store.records[case.key]["kind"] != "missing"
    ]
    others: dict[str, list[str]] = defaultdict(list)
    for case, outcome in ran:
        if outcome.kind != "wgpu":
            others[outcome.kind].append(case.name)
    is_models = any(case.suite == "real" for case in cases)
    return {
        **{name: store.head[name] for name in ("date", "packages", "fingerprint")},
        "cases": len(ran),
        "others": others,
        "unexpected": {each.key: each.reason for _, each in ran if expected.unexpected(each, store.device) is not None},
        "types": {} if is_models else _counts((kind, each) for case, each in ran for kind in case.types),
        "operators": _counts((case.operator, each) for case, each in ran if case.suite in ("node", "web")),
        "models": [_model(store.records[case.key]) for case, _ in ran] if is_models else [],
    }


def _model(record: Record) -> Record:
    return {name: value for name, value in record.items() if name in ("key", "kind", "reason", "facts")}


def _counts(pairs: Iterable[tuple[str, Outcome]]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for label, outcome in pairs:
        counts[label][outcome.kind] += 1
    return {label: dict(sorted(counts[label].items())) for label in sorted(counts)}
