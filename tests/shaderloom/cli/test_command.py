"""Commands as typer sees them: groups of options, ``--debug``, and errors on one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from shaderloom.cli.command import as_command
from shaderloom.cli.options import JsonOption, OptionGroup
from shaderloom.runtime.plan.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Size(OptionGroup):
    low: Annotated[int, typer.Option("--low", help="The least.")] = 1
    high: Annotated[int | None, typer.Option("--high", help="The most.")] = None


@as_command
def measure(
    name: Annotated[str, typer.Argument()],
    *,
    unit: Annotated[str, typer.Option("--unit")] = "m",
    size: Size,
    as_json: JsonOption = False,
) -> None:
    """Measure."""
    if size.high is not None and size.high < size.low:
        raise InputError("the range is empty", hint="swap the two")
    typer.echo(f"{name} {size.low} {size.high} {unit} {as_json}")


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(measure)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_options_of_a_group_stand_in_its_place(run):
    app = typer.Typer()
    app.command()(measure)
    names = [parameter.opts[0] for parameter in typer.main.get_command(app).params]
    assert names[:6] == ["name", "--unit", "--low", "--high", "--json", "--debug"]


def test_a_group_has_the_values_and_the_defaults(run):
    assert run("a", "--high", "7").stdout == "a 1 7 m False\n"
    assert run("a", "--low", "3", "--unit", "s", "--json").stdout == "a 3 None s True\n"


def test_errors_are_one_line_and_debug_shows_where(run):
    result = run("a", "--low", "3", "--high", "2")
    assert result.exit_code == 1
    assert result.stderr == "error: input: the range is empty [swap the two]\n"
    assert "Traceback" in run("a", "--low", "3", "--high", "2", "--debug").stderr
