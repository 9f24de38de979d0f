"""The reference of the command line as Markdown, from the help texts of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from shaderloom.cli import app


def cli_reference() -> str:
    """Return a section for each command: its help, its examples, and a table of its arguments and options."""
    return "\n".join(
        line
        for name, command in _commands("shaderloom", typer.main.get_command(app))
        for line in _section(name, command)
    )


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield name, command
    for child, inner in (children or {}).items():
        yield from _commands(f"{name} {child}", inner)


def _section(name: str, command: Any) -> Iterator[str]:
    text, _, examples = command.help.partition("[bold]Examples[/bold]")
    yield from (f"## {name}", "", *(line.strip() for line in text.strip().splitlines()), "")
    if examples:
        yield from ("```sh", *(line.strip() for line in examples.splitlines() if line.strip()), "```", "")
    yield from ("| | |", "|---|---|")
    for parameter in command.params:
        names = [*parameter.opts, *parameter.secondary_opts] if parameter.param_type_name == "option" else []
        words = [f"`{word}`" for word in (*names, parameter.metavar) if word]
        yield f"| {_cell(' '.join(words))} | {_cell(parameter.help or '')} |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
