"""``./dev conformance``: run the suites and write ``docs/conformance.md``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from . import expected, report
from .cases import SUITES, ConformanceCase, suite_cases
from .pool import ROOT, Record, outcome_of, run_all
from .store import Store
from .update import update


def main() -> int:
    arguments = _parse()
    cases = [case for suite in arguments.suite or SUITES for case in suite_cases(suite)]
    skipped = {key for group in expected.groups() if group.kind == "unsound" for key in group.cases}
    cases = [case for case in cases if case.key not in skipped and arguments.match in case.key]
    number, _, shards = arguments.shard.partition("/")
    mine = cases[int(number) - 1 :: int(shards)]
    store = Store(arguments.device, arguments.shard.replace("/", " of ") if shards != "1" else "")
    store.resume() if arguments.resume else store.clear()
    device = _run(mine, store, arguments.device, arguments.limit)
    outcomes = {record["key"]: outcome_of(record) for record in store.records.values()}
    if arguments.update:
        for outcome in update(outcomes.values()):
            print(f"no group for {outcome.key}: {outcome.kind}: {outcome.reason}")
        return 0
    bad = [text for case in mine if (text := expected.unexpected(outcomes[case.key])) is not None]
    counted = Counter(report.column(outcomes[case.key]) for case in mine)
    print(f"{len(mine)} cases on {device}: " + ", ".join(f"{counted[name]} {name}" for name in report.COLUMNS))
    for text in bad:
        print(f"unexpected: {text}")
    if arguments.page:
        Path(arguments.page).write_text(report.write(mine, outcomes, device), encoding="utf-8")
    return 1 if bad else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev conformance", description=__doc__)
    parser.add_argument("--device", default="", help="part of an adapter's name; default: the best adapter")
    parser.add_argument("--suite", action="append", choices=SUITES, help="run this suite only; may be repeated")
    parser.add_argument("--match", default="", help="run only cases whose name has this in it")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="run every N-th case, from the I-th")
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run of the same code has found")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each case")
    parser.add_argument("--page", default="", metavar="FILE", help="write the tables to this file")
    parser.add_argument("--update", action="store_true", help="sort the cases into the groups of expected.toml")
    parser.add_argument("--write", dest="page", action="store_const", const=str(ROOT / "docs" / "conformance.md"))
    return parser.parse_args()


def _run(cases: list[ConformanceCase], store: Store, device: str, limit: float) -> str:
    """Run what has no result yet; gives the device's name."""
    wanted: dict[str, list[str]] = {}
    for case in cases:
        if case.key not in store.records:
            wanted.setdefault(case.suite, []).append(case.name)
    total, started = len(cases), time.monotonic()

    def done(record: Record) -> None:
        store.add(record)
        count = len(store.records)
        if sys.stderr.isatty() or count % 100 == 0:
            print(f"\r{count} of {total}, {time.monotonic() - started:.0f} s", end="", file=sys.stderr, flush=True)

    name = run_all(wanted, device, limit, done)
    print(file=sys.stderr)
    return name or device or "the default device"


if __name__ == "__main__":
    sys.exit(main())
