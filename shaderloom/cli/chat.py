"""``shaderloom chat``: talk with a model in the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..interrupts import noted_interrupts
from ..runtime.plan.errors import ShaderloomError, UnsupportedError, unwritable
from .command import as_command
from .common import speak_of_options
from .generation import FolderArgument, FolderOptions, SamplingOptions, open_generator, print_pieces, summary
from .terminal import echo

if TYPE_CHECKING:
    from ..generate.answer import Generation
    from ..generate.generator import Generator

_HELP = "/reset forgets the chat, /save FILE writes it as JSON, /exit or Ctrl-D ends; Ctrl-C ends an answer"


@as_command
def command(
    folder: FolderArgument,
    *,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="What the model is told before the chat.")
    ] = None,
    sampling: SamplingOptions,
    opening: FolderOptions,
) -> None:
    """Talk with the model of a folder. Each turn computes only what is new.

    Lines that begin with / are commands: /reset, /save FILE, /exit. Ctrl-C ends an answer with its next token, not the
    program; a second one ends a turn at once, which then counts for nothing.

    [bold]Example[/bold]

      shaderloom chat smollm2 --temperature 0.7 --top-p 0.9
    """
    with open_generator(folder, opening) as generator:
        if not generator.has_template:
            raise UnsupportedError("the model has no chat template", hint="shaderloom generate continues a text")
        echo(_HELP, err=True)
        _Chat(generator, system, sampling.chosen).run()


class _Chat:
    def __init__(self, generator: Generator, system: str | None, sampling: dict[str, Any]) -> None:
        self._generator = generator
        self._sampling = sampling
        self._start = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._start)

    def run(self) -> None:
        """Read lines until the input ends; neither an error of a turn nor an interrupt ends the chat."""
        while True:
            try:
                echo("> ", err=True, newline=False)
                line = input().strip()
                if line == "/exit":
                    return
                if line.startswith("/"):
                    self._command(*line.split(maxsplit=1))
                elif line:
                    self._answer(line)
            except EOFError:
                echo(err=True)
                return
            except KeyboardInterrupt:
                echo(f"\n{_HELP}", err=True)
            except ShaderloomError as error:
                echo(f"error: {speak_of_options(str(error))}", err=True)

    def _command(self, name: str, argument: str = "") -> None:
        if name == "/reset":
            self._messages = list(self._start)
            echo("the chat begins anew", err=True)
        elif name == "/save" and argument:
            try:
                text = json.dumps(self._messages, indent=2, ensure_ascii=False)
                Path(argument).write_text(text + "\n", encoding="utf-8")
                echo(f"{len(self._messages)} messages in {argument}", err=True)
            except OSError as error:
                raise unwritable(Path(argument), error) from error
        else:
            echo(_HELP, err=True)

    def _answer(self, line: str) -> None:
        messages = [*self._messages, {"role": "user", "content": line}]
        with noted_interrupts() as is_interrupted:
            generation = self._generator.generate(messages, **self._sampling)
            print_pieces(_pieces(generation, is_interrupted))
            self._messages = [*messages, {"role": "assistant", "content": generation.text}]
        echo(summary(generation), err=True)


def _pieces(generation: Generation, is_interrupted: Callable[[], bool]) -> Iterator[str]:
    """Yield the pieces of an answer, which an interrupt ends."""
    for piece in generation:
        yield piece
        if is_interrupted():
            generation.close()
