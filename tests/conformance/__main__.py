"""``./dev conformance``: run the suites and write ``docs/guide/conformance.md``.

A run can be cut into parts: by suite, by name, or by time with ``--seconds`` and then ``--resume``.  A suite of which
nothing is left to run replaces its own results on that device in ``tests/conformance/results``, from which the page is
written, each part with its date.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from . import expected, report
from .cases import SUITES, ConformanceCase, suite_cases
from .pool import ROOT, Pool, Record, outcome_of
from .results import Results
from .store import Store
from .update import update

PAGE = ROOT / "docs" / "guide" / "conformance.md"
#: Exit codes: all as expected, something unexpected, not finished
GOOD, BAD, UNFINISHED = 0, 1, 3


def main() -> int:
    arguments = _parse()
    every = _cases(SUITES, arguments.large)
    chosen = [case for case in every if case.suite in (arguments.suite or SUITES) and arguments.match in case.key]
    if arguments.page_only:
        Path(arguments.page or PAGE).write_text(report.write(Results.every()), encoding="utf-8")
        return GOOD
    store = Store.of_device(arguments.device)
    store.begin(resume=arguments.resume)
    _run(chosen, store, arguments)
    left = [case for case in chosen if case.key not in store.records]
    if arguments.update and not left:
        for outcome in update(outcome_of(store.records[case.key]) for case in chosen):
            print(f"no group for {outcome.key}: {outcome.kind}: {outcome.reason}")
        return GOOD
    bad = _summarise([case for case in chosen if case.key in store.records], store)
    if _keep(every, store):
        Path(arguments.page or PAGE).write_text(report.write(Results.every()), encoding="utf-8")
    if left:
        print(f"{len(left)} of {len(chosen)} cases are left; --resume goes on")
        return UNFINISHED
    return BAD if bad else GOOD


def _keep(cases: list[ConformanceCase], store: Store) -> bool:
    """Replace the results of every suite that is complete; return whether there is one."""
    suites = {case.suite for case in cases} - {case.suite for case in cases if case.key not in store.records}
    results = Results.of_device(store.device)
    for suite in sorted(suites):
        results.replace(suite, [case for case in cases if case.suite == suite], store)
    return bool(suites)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev conformance", description=__doc__)
    parser.add_argument("--device", default="", help="part of an adapter's name; default: the best adapter")
    parser.add_argument("--suite", action="append", choices=SUITES, help="run this suite only; may be repeated")
    parser.add_argument("--match", default="", help="run only cases whose name has this in it")
    parser.add_argument("--large", action="store_true", help="run the models for a GPU as well")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so many seconds")
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run of the same code has found")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for each case")
    parser.add_argument("--page", default="", metavar="FILE", help="write the page to this file")
    parser.add_argument("--page-only", action="store_true", help="run nothing; write the page")
    parser.add_argument("--update", action="store_true", help="sort the cases into the groups of expected.toml")
    return parser.parse_args()


def _cases(suites: tuple[str, ...], large: bool) -> list[ConformanceCase]:
    from .models import real_models

    left_out = {key for group in expected.groups() if group.kind == "unsound" for key in group.cases}
    if not large:
        left_out |= {f"real/{model.name}" for model in real_models() if model.large}
    return [case for suite in suites for case in suite_cases(suite) if case.key not in left_out]


def _run(cases: list[ConformanceCase], store: Store, arguments: argparse.Namespace) -> None:
    """Run what has no result yet."""
    wanted: dict[str, list[str]] = {}
    for case in cases:
        if case.key not in store.records:
            wanted.setdefault(case.suite, []).append(case.name)
    total, started = sum(map(len, wanted.values())), time.monotonic()
    count = 0

    def done(record: Record) -> None:
        nonlocal count
        count += 1
        store.name_device(pool.device_name)
        store.add(record)
        if sys.stderr.isatty() or count % 100 == 0:
            print(f"\r{count} of {total}, {time.monotonic() - started:.0f} s", end="", file=sys.stderr, flush=True)

    pool = Pool(arguments.device, arguments.limit, started + arguments.seconds, done)
    pool.run(wanted, arguments.jobs)
    print(file=sys.stderr)


def _summarise(cases: list[ConformanceCase], store: Store) -> list[str]:
    """Print the totals and what is not as expected, which this gives as well."""
    outcomes = [outcome_of(store.records[case.key]) for case in cases]
    counted = Counter(report.column(outcome.kind) for outcome in outcomes)
    totals = ", ".join(f"{counted[name]} {name}" for name in (*report.COLUMNS, "missing") if counted[name])
    print(f"{len(cases)} cases on {store.device}: {totals}")
    bad = [text for outcome in outcomes if (text := expected.unexpected(outcome, store.device)) is not None]
    for text in bad:
        print(f"unexpected: {text}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
