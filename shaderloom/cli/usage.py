"""The command group: a wrong command line is one line on standard error and exit status 2, like every other error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from ..interrupts import INTERRUPTED
from .common import refused_by_system
from .terminal import echo

#: What the parser raises.  typer may carry the library that defines it inside, so it is found by what is public.
UsageError: Any = typer.BadParameter.__mro__[1]


class CommandGroup(TyperGroup):
    """A group that terminates the process itself in every case."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        try:
            status = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except UsageError as error:
            _refuse(error, self._named(sys.argv[1:] if args is None else args))
        except OSError as error:  # of a text of the parser's own, which no command guards
            echo(f"error: {refused_by_system(error)}", err=True)
            status = 1
        except (typer.Abort, KeyboardInterrupt):
            status = INTERRUPTED
        if status == INTERRUPTED:
            echo("error: interrupted", err=True)
        sys.exit(status if isinstance(status, int) else 0)

    def _named(self, args: Sequence[str]) -> str:
        """Return the command that a wrong command line names, of which the parser does not always tell."""
        path, group = ["shaderloom"], self
        for word in args:
            if word in group.commands:
                path.append(word)
                group = group.commands[word]  # type: ignore[assignment]
                if not hasattr(group, "commands"):
                    break
        return " ".join(path)


def _refuse(error: Any, named: str) -> NoReturn:
    message = error.format_message().strip()
    if "\n" in message:  # no command at all: the help
        echo(message, err=True)
    elif message:  # else the parser has printed the help
        context = getattr(error, "ctx", None)
        path = named if context is None else context.command_path
        reason = message[:1].lower() + message[1:].rstrip(".").replace("Value error, ", "")
        echo(f"error: usage: {reason} [{path} --help]", err=True)
    sys.exit(error.exit_code)
