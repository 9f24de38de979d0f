"""Run the main job of a program twice, in its environment: ``python job.py NAME``.

The last line on standard output is JSON: what a user sees, and the seconds of both runs.  Importing the program and
opening its models is part of the first.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any


def main(name: str) -> dict[str, Any]:
    start = time.perf_counter()
    run = importlib.import_module(f"jobs.{name}").run
    first = run()
    middle = time.perf_counter()
    again = run()
    end = time.perf_counter()
    assert json.dumps(first) == json.dumps(again) or _is_near(first, again), "the second run gives something else"
    return {"result": first, "first": middle - start, "again": end - middle}


def _is_near(first: Any, again: Any) -> bool:
    from comparing import difference

    return difference(first, again) is None


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
