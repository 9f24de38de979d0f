"""``./dev programs``: run every program, or those that are named, and write ``docs/guide/programs.md``.

Results are kept in bench/results, so the page also has those that were not run this time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from dataclasses import asdict, replace

from shaderloom.runtime.device.opening import open_device

from .page import PAGE, STORE, stored, write
from .running import NotInstalled, Result, programs, run


def main() -> int:
    """Run the command; return its status: 1 if a program shows something else."""
    every = programs()
    parser = argparse.ArgumentParser(
        prog="./dev programs",
        description="Run programs of PyPI on onnxruntime and on this package, compare what a user sees, and write "
        "docs/guide/programs.md. Each is installed in an environment of its own, which is removed after it.",
    )
    parser.add_argument("programs", nargs="*", metavar="NAME", help="one of tests/programs/programs.toml; all without")
    names = parser.parse_args().programs
    unknown = set(names) - {program.name for program in every}
    if unknown:
        parser.error(f"there is no program {', '.join(sorted(unknown))}: see tests/programs/programs.toml")
    results = stored()
    device = open_device(None).name
    faults = 0
    for program in every:
        if names and program.name not in names:
            continue
        try:
            result = run(program)
        except NotInstalled as error:
            result = Result(program.name, f"not installed: {error}")
        print(f"{program.name}: {result.fault or 'the same'}", flush=True)
        faults += bool(result.fault)
        today, load = str(datetime.date.today()), round(os.getloadavg()[1], 1)
        results[program.name] = replace(result, device=device, cores=os.cpu_count() or 1, date=today, load=load)
        rows = [asdict(results[each.name]) for each in every if each.name in results]
        STORE.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    PAGE.write_text(write(every, results), encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
