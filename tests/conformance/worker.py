"""A process that runs cases and says how each one went, a line of JSON at a time; :mod:`.pool` starts it."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import sys
import time

from ..conftest import SWIFTSHADER  # noqa: F401  (offers every driver to wgpu before it is imported)
from .cases import suite_cases
from .running import run_case


def main() -> None:
    """Arguments: the device, then on standard input a suite and names of cases, as JSON."""
    from shaderloom.runtime.device import open_device

    faulthandler.enable()
    device = open_device(sys.argv[1])
    wanted: dict[str, list[str]] = json.load(sys.stdin)
    out = sys.stdout
    sys.stdout = sys.stderr  # what a case prints is no message

    def say(**message: object) -> None:
        print(json.dumps(message), file=out, flush=True)

    say(device=device.name)
    for suite, names in wanted.items():
        chosen = set(names)
        for case in suite_cases(suite):
            if case.name in chosen:
                say(start=case.key)
                started = time.process_time()
                outcome = run_case(case, device)
                say(**dataclasses.asdict(outcome), seconds=round(time.process_time() - started, 3))


if __name__ == "__main__":
    main()
