"""Commands from functions: groups of options as parameters, ``--debug``, and errors on one line."""

from __future__ import annotations

import functools
import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from inspect import Parameter, Signature
from typing import Any, get_type_hints

import typer

from ..interrupts import raised_interrupts
from ..runtime.plan.errors import ShaderloomError
from .common import refused_by_system, speak_of_options
from .options import DebugOption, OptionGroup
from .terminal import echo


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """Return what typer registers for ``function``.

    A parameter whose type is an :class:`OptionGroup` becomes the options of the group, in its place.  Errors are one
    line on standard error and exit status 1; with ``--debug``, which every command has, the traceback comes first.
    """
    hints = get_type_hints(function, include_extras=True)
    stated = inspect.signature(function).parameters
    groups: dict[str, tuple[Field[Any], ...]] = {name: fields(hints[name]) for name in stated if _is_group(hints[name])}

    @functools.wraps(function)
    def wrapper(**values: Any) -> None:
        debug = values.pop("debug")
        for name, options in groups.items():
            values[name] = hints[name](**{option.name: values.pop(option.name) for option in options})
        try:
            with raised_interrupts():
                function(**values)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):  # the reader has closed the pipe
            raise
        except Exception as error:  # any error: the user gets one line
            if debug:
                echo(traceback.format_exc(), err=True, newline=False)
            other = "" if "providers" in signature.parameters else "shaderloom run"
            echo("error: " + " ".join(_message(error, other).split()), err=True)
            raise typer.Exit(1) from None

    def parameters() -> Iterator[Parameter]:
        for name, parameter in stated.items():
            own = get_type_hints(hints[name], include_extras=True) if name in groups else {}
            for option in groups.get(name, ()):
                yield Parameter(
                    option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=own[option.name]
                )
            if name not in groups:
                yield parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
        yield Parameter("debug", Parameter.KEYWORD_ONLY, default=False, annotation=DebugOption)

    signature = Signature(list(parameters()))
    wrapper.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    wrapper.__doc__ = _unwrapped(function.__doc__ or "")
    wrapper.__signature__ = signature  # type: ignore[attr-defined]  # typer reads it
    return wrapper


def _unwrapped(text: str) -> str:
    """Return a docstring with one line for each paragraph, which the help wraps to the width of the terminal."""
    return re.sub(r"(?<!\n)\n *(?=\S)", " ", inspect.cleandoc(text))


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, OptionGroup)


def _message(error: Exception, other: str) -> str:
    """Return the text of an error; ``other`` is a command with ``--providers`` where the one that failed has none."""
    if isinstance(error, ShaderloomError):
        return speak_of_options(str(error), other)
    if isinstance(error, OSError):
        return refused_by_system(error)
    return f"internal error: {type(error).__name__}: {error} [--debug shows where; please report it]"
