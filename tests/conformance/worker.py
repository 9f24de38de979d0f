"""A process that runs cases and says how each one went, a line of JSON at a time; :mod:`.pool` starts it."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from ..conftest import SWIFTSHADER  # noqa: F401  (offers every driver to wgpu before it is imported)
from .cases import ConformanceCase, suite_cases
from .running import Outcome, run_case

if TYPE_CHECKING:
    from shaderloom.runtime.device.device import Device


def main() -> None:
    """Arguments: the device, then on standard input a suite and names of cases, as JSON."""
    from shaderloom.runtime.device.opening import open_device

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
                outcome, facts = _run(case, device)
                seconds = round(time.process_time() - started, 3)
                say(**dataclasses.asdict(outcome), **facts, seconds=seconds)


def _run(case: ConformanceCase, device: Device) -> tuple[Outcome, dict[str, Any]]:
    if case.suite != "real":
        return run_case(case, device), {}
    from examples.ocr.fetch import ModelUnavailableError

    from .models import measure, real_models

    model = next(each for each in real_models() if each.name == case.name)
    try:
        outcome, facts = measure(model, device)
    except ModelUnavailableError as error:
        return Outcome(case.key, "missing", str(error)), {}
    return outcome, {"facts": facts}


if __name__ == "__main__":
    main()
