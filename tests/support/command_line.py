"""The command ``shaderloom`` in the process of a test."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from shaderloom.cli import app


def run_command(*arguments: object, status: int = 0) -> Result:
    """Run the command, which must end with this status."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result
