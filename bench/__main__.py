"""Command line of the benchmarks: see ``python -m bench --help``."""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
from pathlib import Path

from rich.console import Console

from . import compile_speed, gpu_page, report
from .models import MODELS
from .runner import Result, measure
from .runtimes import DRIVERS, OURS, RUNTIMES, Driver, Runtime
from .starts import PROCESSES

SHORT_MODELS = ("squeezenet1_1", "ppocr_rec")
SHORT_SIZES = (500, 2000)
#: Whose starts take some five minutes on lavapipe, beside ncnn
START_MODELS = ("squeezenet1_1", "mobilenet_v2", "resnet50", "ocr program")
console = Console()


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description="Without a command: a short version of both, no page.")
    commands = parser.add_subparsers(dest="command")
    models = commands.add_parser("models", help="models on this and other runtimes, interleaved")
    models.add_argument("--models", type=_names(MODELS), default=list(MODELS), metavar="A,B")
    models.add_argument("--drivers", type=_names(DRIVERS), metavar="A,B", help=f"of {', '.join(DRIVERS)}")
    models.add_argument("--runtimes", type=_names(RUNTIMES), metavar="A,B", help=f"of {', '.join(RUNTIMES)}")
    models.add_argument("--runs", type=int, default=10, help="rounds (10)")
    models.add_argument("--seconds", type=float, default=20.0, help="most time of one runtime in these rounds (20)")
    models.add_argument("--peers", action="store_true", help="install the other runtimes into build/bench and run them")
    models.add_argument("--processes", type=int, default=len(PROCESSES), help="starts of each runtime (3)")
    starts = commands.add_parser("starts", help="the starts of processes alone: no runs, no reference")
    starts.add_argument("--models", type=_names(MODELS), default=list(START_MODELS), metavar="A,B")
    starts.add_argument("--drivers", type=_names(DRIVERS), metavar="A,B", help=f"of {', '.join(DRIVERS)}")
    starts.add_argument(
        "--runtimes", type=_names(RUNTIMES), default=list(OURS), metavar="A,B", help="peers are installed"
    )
    commands.add_parser("page", help="write the pages and pictures again from what is stored")
    compiling = commands.add_parser("compile", help="the compiler's own time, and how it grows")
    compiling.add_argument("--models", type=_names(MODELS), default=list(MODELS), metavar="A,B")
    compiling.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=compile_speed.SIZES)
    compiling.add_argument("--repeat", type=int, default=3, help="later times, of which the least counts (3)")
    arguments = parser.parse_args()
    os.chdir(Path(__file__).resolve().parents[1])
    if arguments.command == "models":
        run_models(
            arguments.models, _drivers(arguments.drivers), _runtimes(arguments.runtimes, arguments.peers),
            arguments.runs, arguments.seconds, page=True, processes=arguments.processes,
        )  # fmt: skip
    elif arguments.command == "starts":
        runtimes = [RUNTIMES[name] for name in arguments.runtimes]
        run_models(arguments.models, _drivers(arguments.drivers), runtimes, 0, 0.0, page=True)
    elif arguments.command == "compile":
        run_compile(arguments.models, arguments.sizes, arguments.repeat, page=True)
    elif arguments.command == "page":
        report.write_page()
        gpu_page.write()
        gpu_page.draw()
    else:
        run_models(list(SHORT_MODELS), _drivers(None)[:1], _runtimes(None, False), 5, 5.0, page=False)
        run_compile(list(SHORT_MODELS), SHORT_SIZES, 1, page=False)


def _names(choices: dict[str, object]):  # type: ignore[no-untyped-def]  # what argparse calls a type
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in choices:
                raise argparse.ArgumentTypeError(f"unknown: {name}; there are {', '.join(choices)}")
        return names

    return parse


def _drivers(names: list[str] | None) -> list[Driver]:
    """Those asked for, or the software drivers that are installed, or what the system has; browsers if asked for."""
    if names is not None:
        missing = [name for name in names if not DRIVERS[name].is_present]
        if missing:
            raise SystemExit(f"not installed: {', '.join(missing)}")
        return [DRIVERS[name] for name in names]
    present = [driver for driver in DRIVERS.values() if driver.manifests and driver.is_present]
    return present or [DRIVERS["system"]]


def _runtimes(names: list[str] | None, peers: bool) -> list[Runtime]:
    """Those asked for; without names ours, with ``peers`` all.  The reference is always the first."""
    chosen = [
        runtime
        for runtime in RUNTIMES.values()
        if (runtime.name in names if names is not None else peers or not runtime.is_peer) or not runtime.drivers
    ]
    for runtime in chosen:
        if not peers and not runtime.is_installed:
            raise SystemExit(f"{runtime.title} is not installed: add --peers")
    return chosen


def _installed(runtimes: list[Runtime]) -> tuple[list[Runtime], dict[str, str]]:
    """Those that are installed by now, and why the others cannot be."""
    ready, refused = [], {}
    for runtime in runtimes:
        with console.status(f"installing {runtime.title}"):
            try:
                runtime.install()
                ready.append(runtime)
            except (subprocess.CalledProcessError, OSError) as error:
                said = str(getattr(error, "stderr", error)).strip()[-300:]
                refused[runtime.name] = f"cannot be installed: {said}"
    return ready, refused


def run_models(
    names: list[str],
    drivers: list[Driver],
    runtimes: list[Runtime],
    rounds: int,
    seconds: float,
    *,
    page: bool,
    processes: int = len(PROCESSES),
) -> None:
    for driver in drivers:
        results = []
        accepted = [runtime for runtime in runtimes if not runtime.drivers or driver.name in runtime.drivers]
        usable, refused = _installed(accepted)
        for name in names:
            ours = [runtime for runtime in usable if runtime.name in OURS]
            chosen = ours if MODELS[name].worker else usable
            with console.status("") as status:
                measured = measure(
                    MODELS[name], chosen, driver, rounds=rounds, seconds=seconds, processes=processes,
                    tell=lambda text: status.update(text),
                )  # fmt: skip
            measured += [
                Result(name, runtime, driver.name, measured[0].date, error) for runtime, error in refused.items()
            ]
            results += measured
            if page:
                report.save_models(measured)
                report.write_page()
        runs = (report.run_table(results), report.comparison(results)) if rounds else ()
        print(f"## {driver.title}\n\n" + "\n".join((*runs, report.start_table(results))))
        for result in results:
            if result.error:
                console.print(f"{result.model} on {RUNTIMES[result.runtime].title}: {result.error}", markup=False)


def run_compile(names: list[str], sizes: tuple[int, ...], repeat: int, *, page: bool) -> None:
    with console.status("") as status:
        models = compile_speed.measure_models(names, repeat, status.update)
        graphs = compile_speed.measure_graphs(sizes, repeat, status.update)
    print(report.compile_tables(models, graphs))
    if page:
        report.save_compile(models, graphs, datetime.date.today().isoformat())
        report.write_page()


if __name__ == "__main__":
    main()
