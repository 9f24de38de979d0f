"""``shaderloom as-onnxruntime``: run a command whose Python programs find this package under onnxruntime's name."""

from __future__ import annotations

from typing import Annotated

import typer

from .command import as_command


@as_command
def command(
    arguments: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="A command with its arguments.")],
) -> None:
    """Run a command, in which 'import onnxruntime' gives this package, as it does in the processes that it starts.

    What the programs name as providers does not count unless SHADERLOOM_PROVIDERS is 'program': they get wgpu, and the
    cpu for what it cannot run. A line on standard error says what was asked for.

    [bold]Examples[/bold]

      shaderloom as-onnxruntime -- python program.py --picture cat.png

      SHADERLOOM_PROVIDERS=cpu shaderloom as-onnxruntime -- rembg i cat.png cut.png
    """
    from ..as_onnxruntime.launch import start

    start(arguments)
