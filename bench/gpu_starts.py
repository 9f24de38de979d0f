"""Starts of processes on a GPU: cold, second and third, each with the caches that a user's processes have."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

#: A process with empty caches, and two after it
PROCESSES = ("cold", "second", "third")
RUNTIMES = ("shaderloom", "onnxruntime")
#: Folders of caches, ours and the driver's, in the home that the processes of one runtime and model share
_FOLDERS = {"HOME": "", "XDG_CACHE_HOME": ".cache", "XDG_STATE_HOME": ".local/state", "XDG_CONFIG_HOME": ".config"}
_PATIENCE = 120

#: seconds to ``imported``, ``created`` and ``first`` output, ``run_ms`` of a later run; or an ``error``
Start = dict[str, Any]


def measure_starts(model: Path, inputs: Path, environment: dict[str, str]) -> dict[str, list[Start]]:
    """Return the starts of each runtime, in the order of :data:`PROCESSES`; the runtimes take turns."""
    homes = {runtime: tempfile.mkdtemp(prefix="start-") for runtime in RUNTIMES}
    starts: dict[str, list[Start]] = {runtime: [] for runtime in RUNTIMES}
    try:
        for _ in PROCESSES:
            for runtime, home in homes.items():
                folders = {name: os.path.join(home, folder) for name, folder in _FOLDERS.items()}
                starts[runtime].append(_start(runtime, model, inputs, {**environment, **folders}))
    finally:
        for home in homes.values():
            shutil.rmtree(home, ignore_errors=True)
    return starts


def _start(runtime: str, model: Path, inputs: Path, environment: dict[str, str]) -> Start:
    command = [sys.executable, "-m", "bench.workers.gpu_start", runtime, str(model), str(inputs), str(time.time())]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no output in {_PATIENCE} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])
