"""The ``shaderloom`` command.  Each command has a module of its own and imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
import warnings
from enum import StrEnum
from typing import Annotated, Any

import typer

from ..interrupts import INTERRUPTED
from ..notices import SoftwareAdapterWarning
from ..version import __version__
from . import (
    as_onnxruntime,
    bench_tokens,
    cache,
    chat,
    check,
    compile,
    convert,
    devices,
    generate,
    inspect,
    map,
    profile,
    repro,
    run,
    serve,
    tune,
    verify,
)
from .common import refused_by_system, speak_of_options
from .terminal import echo, open_closed_streams, print_log
from .usage import CommandGroup

app = typer.Typer(
    name="shaderloom",
    cls=CommandGroup,
    help="Compile ONNX models to fused WGSL compute shaders, run them on a GPU, and look at what was compiled.",
    epilog="Run 'shaderloom COMMAND --help' for examples.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"shaderloom {__version__}")
        raise typer.Exit


class LogLevel(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


@app.callback()
def root(
    context: typer.Context,
    log: Annotated[
        LogLevel | None, typer.Option("--log", help="Print what is compiled, cached and opened, on standard error.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compile ONNX models to fused WGSL compute shaders, run them on a GPU, and look at what was compiled."""
    if log is not None:
        context.with_resource(print_log(log))


app.command("run")(run.command)
app.command("map")(map.command)
app.command("inspect")(inspect.command)
app.command("profile")(profile.command)
app.command("tune")(tune.command)
app.command("check")(check.command)
app.command("repro")(repro.command)
app.command("compile")(compile.command)
app.command("verify")(verify.command)
app.command("serve")(serve.command)
app.command("convert")(convert.command)
app.command("generate")(generate.command)
app.command("chat")(chat.command)
app.command("bench-tokens")(bench_tokens.command)
app.command("devices")(devices.command)
app.command("as-onnxruntime")(as_onnxruntime.command)
app.add_typer(cache.app, name="cache")


def main() -> None:
    """Run the command line program."""
    open_closed_streams()
    notes: list[str] = []
    said: set[str] = set()

    def show(message: Warning | str, *_: Any) -> None:
        if str(message) not in said:  # a command may open a model twice
            said.add(str(message))
            (notes.append if isinstance(message, SoftwareAdapterWarning) else _print_warning)(str(message))

    warnings.showwarning = show  # type: ignore[assignment]  # its other parameters are not needed
    status: Any = 0
    try:
        app()
    except SystemExit as ended:
        status = ended.code
    except KeyboardInterrupt:  # as a command began or ended
        echo("error: interrupted", err=True)
        status = INTERRUPTED
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python writes again while it ends
        if not status and not isinstance(error, BrokenPipeError):  # the reader has closed the pipe
            echo(f"error: {refused_by_system(error)}", err=True)
        status = status or 1
    for note in () if status else notes:  # after the result, and not beside an error
        _print_warning(note)
    if status == INTERRUPTED:
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # in the teardown a driver that is busy would be awaited, or end the process by a signal
    if status:
        sys.exit(status)


def _print_warning(message: str) -> None:
    """Print a warning on one line, formatted like an error; its source location means nothing to a user."""
    echo("warning: " + " ".join(speak_of_options(message).split()), err=True)
