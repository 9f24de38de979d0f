"""Run the main job of a program twice, in its environment: ``python job.py NAME``.

The last line on standard output is JSON: what a user sees, and the seconds of both runs.  Importing the program and
opening its models is part of the first.  With the real onnxruntime sums of products of bytes are exact.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any


def main(name: str) -> dict[str, Any]:
    start = time.perf_counter()
    _multiply_bytes_exactly()
    run = importlib.import_module(f"jobs.{name}").run
    first = run()
    middle = time.perf_counter()
    again = run()
    end = time.perf_counter()
    assert json.dumps(first) == json.dumps(again) or _is_near(first, again), "the second run gives something else"
    return {"result": first, "first": middle - start, "again": end - middle}


def _multiply_bytes_exactly() -> None:
    """Set the option by which onnxruntime does not saturate sums of 16 bits on processors without VNNI.

    There its results are those of another model: sums of one of the programs are a fifth off.
    """
    import onnxruntime

    if onnxruntime.InferenceSession.__init__.__module__.startswith("shaderloom."):
        return
    opened = onnxruntime.InferenceSession.__init__

    def open_exact(self: Any, model: Any, sess_options: Any = None, *arguments: Any, **options: Any) -> None:
        sess_options = sess_options or onnxruntime.SessionOptions()
        sess_options.add_session_config_entry("session.x64quantprecision", "1")
        opened(self, model, sess_options, *arguments, **options)

    onnxruntime.InferenceSession.__init__ = open_exact


def _is_near(first: Any, again: Any) -> bool:
    from comparing import difference

    return difference(first, again) is None


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
