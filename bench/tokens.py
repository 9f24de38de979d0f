"""Tokens a second of a folder under onnxruntime-genai on the processor and under Shaderloom, in turns.

    python -m bench.tokens FOLDER [--prompt 128] [--tokens 32] [--rounds 5] [--driver lavapipe]

Each runtime is a process with the model open; a round is one text of each: the prompt, then the most probable tokens,
as many as are asked for.  Medians, and the median of the ratios of the rounds, are stored in
``bench/results/tokens.json``; onnxruntime-genai is installed into ``build/bench``.  Both get the same random prompt,
and the tokens that agree from the first on are counted.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from .report import processor
from .runtimes import DRIVERS, Runtime
from .worker import Worker

STORE = Path("bench") / "results" / "tokens.json"
GENAI = Runtime(
    "onnxruntime-genai", "onnxruntime-genai CPU", "tokens_genai", packages=("onnxruntime-genai==0.18.0", "numpy")
)
OURS = Runtime("shaderloom", "Shaderloom", "tokens_shaderloom")
#: Ids of the prompt are less than this
VOCABULARY = 2000


def measure(folder: Path, prompt: int, count: int, rounds: int, driver: str) -> dict[str, Any]:
    """Return the times of each runtime in each round; raise :class:`.worker.WorkerError` if one fails."""
    ids = np.random.default_rng(0).integers(10, VOCABULARY, prompt).tolist()
    job = json.dumps({"folder": str(folder), "ids": ids, "count": count})
    GENAI.install()
    environment = DRIVERS[driver].environment()
    workers: dict[str, Worker] = {}
    try:
        for runtime in (GENAI, OURS):
            command = [str(runtime.python()), "-m", f"bench.workers.{runtime.worker}", job]
            workers[runtime.name] = Worker(command, environment)
        opened = {name: worker.receive() for name, worker in workers.items()}
        texts = [{name: worker.ask() for name, worker in workers.items()} for _ in range(rounds)]
    finally:
        for worker in workers.values():
            worker.kill()
    sizes = {"prompt": prompt, "count": count, "rounds": rounds}
    return {**sizes, "opened": opened, "texts": texts, "load": os.getloadavg()[0]}


def summary(measured: dict[str, Any], peer: Runtime = GENAI) -> dict[str, Any]:
    """Return medians of each runtime, in tokens a second, and of the ratios of ours to ``peer``'s."""
    prompt, later, texts = measured["prompt"], measured["count"] - 1, measured["texts"]

    def rates(name: str) -> dict[str, list[float]]:
        first, others = ([text[name][key] for text in texts] for key in ("first_s", "others_s"))
        return {"prefill": [prompt / time for time in first], "decode": [later / time for time in others]}

    result: dict[str, Any] = {"prompt": prompt, "count": measured["count"], "rounds": measured["rounds"]}
    by_runtime = {name: rates(name) for name in (peer.name, OURS.name)}
    for name, each in by_runtime.items():
        medians = {f"{key}_tokens_per_second": round(statistics.median(values), 2) for key, values in each.items()}
        result[name] = {**measured["opened"][name], **medians}
    for key in ("prefill", "decode"):
        pairs = zip(by_runtime[OURS.name][key], by_runtime[peer.name][key])
        result[f"{key}_ratio"] = round(statistics.median(ours / theirs for ours, theirs in pairs), 3)
    ours, theirs = (texts[0][name]["tokens"] for name in (OURS.name, peer.name))
    agree = next((place for place, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), len(ours))
    return {**result, "equal_tokens": agree}


def store(name: str, measured: dict[str, Any], peer: Runtime = GENAI) -> None:
    """Write the summary of a measurement under its name, and show it."""
    facts = {"machine": processor(), "date": datetime.date.today().isoformat(), "load": measured["load"]}
    result = {**facts, **summary(measured, peer)}
    stored = json.loads(STORE.read_text()) if STORE.is_file() else {}
    stored[name] = result
    STORE.write_text(json.dumps(stored, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.tokens", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--driver", choices=DRIVERS, default="lavapipe")
    arguments = parser.parse_args()
    measured = measure(arguments.folder, arguments.prompt, arguments.tokens, arguments.rounds, arguments.driver)
    store(f"{arguments.folder.name}, {arguments.driver}", measured)


if __name__ == "__main__":
    main()
