"""Everything that commands print.

Names in texts come from files.  A control character in one would act on the terminal, so what is not printable is
escaped here, and no other module prints.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer

from ..runtime.plan.errors import printable, printable_lines


def echo(text: str = "", *, err: bool = False, newline: bool = True) -> None:
    """Print a text on standard output, or with ``err`` on standard error; lines and tabs stay."""
    typer.echo(printable_lines(text), err=err, nl=newline)


def echo_json(text: str) -> None:
    """Print JSON whose strings are ASCII; of control characters only DEL is not escaped in it yet."""
    typer.echo(text.replace("\x7f", "\\u007f"))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output, as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*titles)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(table)


class _LogPrinter(logging.Handler):
    """Prints records on standard error, each on a line with the name of its logger."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(f"{record.name}: {record.getMessage()}", err=True)


@contextmanager
def print_log(level: str) -> Iterator[None]:
    """Print the records of the logger ``shaderloom`` from ``level`` on, such as ``info``."""
    logger, printer = logging.getLogger("shaderloom"), _LogPrinter()
    before = logger.level
    logger.setLevel(level.upper())
    logger.addHandler(printer)
    try:
        yield
    finally:
        logger.removeHandler(printer)
        logger.setLevel(before)


def open_closed_streams() -> None:
    """Open the null device in place of each standard stream that the caller has closed, for which Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a progress reporter that draws on standard error if that is a terminal, and else does nothing."""
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text, count = TextColumn("{task.description}", markup=False), MofNCompleteColumn()
    columns = (SpinnerColumn(), text, BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, description=printable(what), completed=done, total=total or None)

        yield report
