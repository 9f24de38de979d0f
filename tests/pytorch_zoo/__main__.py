"""``./dev pytorch``: run every model of the zoo, or those that are named, and write docs/guide/pytorch-models.md.

The libraries are installed in build/pytorch-zoo, PyTorch's build for CUDA among them (6 GB); ``--here`` runs on the
interpreter that runs this, which must have them.  Results of one device lie in bench/results, so that the page also has
those that were not run this time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest

from ..support.environments import installed
from .names import MODELS
from .page import RESULTS, ROOT, is_right, write

REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"
#: Seconds for one model
PATIENCE = 1800


def main() -> int:
    """Run the command; return its status: 1 if a result is not right."""
    parser = argparse.ArgumentParser(prog="./dev pytorch", description="Run PyTorch's models, and write their page.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="LIBRARY/NAME; all without one")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time; times are taken by one (1)")
    parser.add_argument("--missing", action="store_true", help="those alone that have no times of this device yet")
    parser.add_argument("--no-times", action="store_true", help="compare alone")
    parser.add_argument("--here", action="store_true", help="run on this interpreter")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results (bench/results)")
    arguments = parser.parse_args()
    unknown = set(arguments.models) - set(MODELS)
    if unknown:
        parser.error(f"there is no model {', '.join(sorted(unknown))}; the models are {', '.join(MODELS)}")
    try:
        python = Path(sys.executable) if arguments.here else installed("pytorch-zoo", REQUIREMENTS)
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        print(error, file=sys.stderr)
        return 1
    facts = json.loads(_output([python, "-m", "tests.pytorch_zoo.facts"]))
    store = arguments.results / f"pytorch-{facts.pop('file')}.json"
    rows: dict[str, Any] = {row["model"]: row for row in _stored(store)}
    names = arguments.models or list(MODELS)
    if arguments.missing:
        names = [name for name in names if not isinstance(rows.get(name, {}).get("times"), dict)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as threads:
        lock = None if arguments.no_times else Path(folder) / "timing"
        for done in as_completed([threads.submit(run, python, name, lock) for name in names]):
            row = done.result()
            print(f"{row['model']}: {'right' if is_right(row) else json.dumps(row)[:1000]}", flush=True)
            rows[row["model"]] = {**row, **facts, "date": str(datetime.date.today())}
            store.write_text(json.dumps([rows[name] for name in MODELS if name in rows], indent=1), encoding="utf-8")
    if arguments.results == RESULTS:
        write()
    return 0 if all(is_right(rows[name]) for name in names) else 1


def run(python: Path, name: str, lock: Path | None) -> dict[str, Any]:
    """Return the results of one model, which runs in a process of its own."""
    try:
        return dict(
            json.loads(_output([python, "-m", "tests.pytorch_zoo.work", name, *filter(None, [lock])]).splitlines()[-1])
        )
    except subprocess.SubprocessError as error:
        lines = str(getattr(error, "stderr", "") or error).strip().splitlines()
        return {"model": name, "session": lines[-1], "compiled": lines[-1], "times": lines[-1]}


def _output(command: list[str | Path]) -> str:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # threads that wait for others sleep, so that the processor's time is that of the work
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    return done.stdout


def _stored(store: Path) -> list[dict[str, Any]]:
    return list(json.loads(store.read_text(encoding="utf-8"))) if store.is_file() else []


if __name__ == "__main__":
    sys.exit(main())
