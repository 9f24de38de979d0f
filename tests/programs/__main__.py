"""``./dev programs``: run every program, or those that are named, and write ``docs/guide/programs.md``.

Results are kept in ``build/programs/results.json``, so the page also has those that were not run this time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from dataclasses import asdict

from shaderloom.runtime.device.opening import open_device

from .page import PAGE, write
from .running import FOLDER, NotInstalled, Result, programs, run

STORE = FOLDER / "results.json"


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
    results = _read()
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
        results[program.name] = result
        STORE.parent.mkdir(parents=True, exist_ok=True)
        STORE.write_text(json.dumps([asdict(each) for each in results.values()]), encoding="utf-8")
    PAGE.write_text(write(every, results, open_device(None).name, str(datetime.date.today())), encoding="utf-8")
    return 1 if faults else 0


def _read() -> dict[str, Result]:
    if not STORE.is_file():
        return {}
    rows = json.loads(STORE.read_text(encoding="utf-8"))
    return {
        row["program"]: Result(**{**row, "theirs": tuple(row["theirs"]), "ours": tuple(row["ours"])}) for row in rows
    }


if __name__ == "__main__":
    sys.exit(main())
