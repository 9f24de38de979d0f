"""Helpers of the commands: parsing of NAME=VALUE, readable errors, formats."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..runtime.plan.errors import DECLARED, InputError
from .terminal import echo_json

#: What hints and warnings say in Python, and on the command line
_SPOKEN = {
    "providers=['wgpu', 'cpu']": "--providers wgpu,cpu",
    "providers=['cpu']": "--providers cpu",
    "providers=['CPUExecutionProvider']": "--providers CPUExecutionProvider",
    "devices='cpu'": "--devices cpu",
    "leave batch='open' out": "leave --batch out",
    "limits={...}": "--limits NAME=SIZE",
    "open the generator with a greater max_length": "pass a greater --max-length",
    "leave the shapes out": "leave --shape out",
    "pass max_length=": "pass --max-length ",
    "pass max_new_tokens": "pass --max-new-tokens",
    "trust is for bundles": "--trust is for bundles",
    "leave file out": "leave out --file",
    "or leave prompt_lookup_num_tokens at 0": "or leave out --prompt-lookup",
    "leave prompt_lookup_num_tokens at 0": "leave out --prompt-lookup",
    "session.placement() lists them": "shaderloom inspect MODEL --show placement lists them",
    DECLARED: "--input gives the values of an input, --shape its shape",
}


def speak_of_options(text: str, command: str = "") -> str:
    """Return the text of an error or a warning with the options of commands for what is said of sessions in Python.

    ``command`` precedes ``--providers`` where the command that speaks has no such option.
    """
    for in_python, option in _SPOKEN.items():
        if option not in text:
            text = text.replace(
                in_python, f"{command} {option}" if command and option.startswith("--providers") else option
            )
    return text


def refused_by_system(error: OSError) -> str:
    """Return the line for an error of the operating system, such as a full disk or a missing folder."""
    name = f" '{error.filename}'" if error.filename else ""
    return f"system: {error.strerror or error}{name} [the operating system refused it]"


def unreadable(path: str | Path, error: Exception, tensor: str) -> InputError:
    """Build the error for a file of values that numpy cannot read."""
    if isinstance(error, OSError):
        return InputError(f"cannot read '{path}': {error.strerror or error}", tensor=tensor, hint="check the path")
    return InputError(f"'{path}' is no .npy file of numbers", tensor=tensor, hint="numpy.save writes them")


def parse_pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Parse ``["a=1", ...]`` into a dict.  A name may contain ``=`` only if the value does not."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, separator, value = text.rpartition("=") if option == "--shape" else text.partition("=")
        if not separator or not name or (not value and option != "--shape"):
            raise InputError(f"{option} wants NAME=VALUE, not '{text}'", hint="--help has examples")
        if name in pairs:
            raise InputError(f"{option} gives '{name}' twice", hint="give it once")
        pairs[name] = value
    return pairs


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Parse ``["x=1x3x224x224"]`` into shapes; ``x=`` is a scalar."""
    shapes = {}
    for name, value in parse_pairs(texts, "--shape").items():
        if value and not re.fullmatch(r"\d{1,18}([x,]\d{1,18})*", value):
            raise InputError(f"--shape {name}={value} is not a list of sizes", hint="write it like 1x3x224x224")
        shapes[name] = tuple(int(size) for size in re.split("[x,]", value)) if value else ()
    return shapes


def parse_dynamic(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]] | str:
    """Parse ``["sequence=1:4096", "H=64:512:4"]`` into (low, high) bounds, with a step as third where it is passed.

    Return a mode that is alone as it is, and ``auto`` for none.
    """
    if not texts:
        return "auto"
    if texts in (["auto"], ["off"]):
        return texts[0]
    return parse_ranges(texts, "--dynamic")


def parse_ranges(texts: Sequence[str] | None, option: str) -> dict[str, tuple[int, ...]]:
    """Parse the bounds of an ``option``, (low, high) or with a step as third; raise :class:`InputError` for others."""
    ranges = {}
    for name, value in parse_pairs(texts, option).items():
        if not re.fullmatch(r"-?\d{1,18}:-?\d{1,18}(:\d{1,18})?", value):
            hint = "write it like sequence=1:4096, or height=64:512:4 for the multiples of 4"
            raise InputError(f"{option} {name}={value} is not a range", hint=hint)
        ranges[name] = tuple(map(int, value.split(":")))
    return ranges


def parse_options(texts: Sequence[str] | None) -> dict[str, Any]:
    """Parse ``["verify=true"]`` into compiler options; a value that is not JSON is a string."""
    options: dict[str, Any] = {}
    for name, value in parse_pairs(texts, "--option").items():
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print deterministic JSON on standard output."""
    echo_json(json.dumps(value, indent=2, sort_keys=True, allow_nan=False))


def count_text(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 plan``, ``2 plans``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def parse_bytes(text: str, option: str) -> int:
    """Parse a number with one of the binary units KiB, MiB and GiB, or none; raise :class:`InputError` for others."""
    size = re.fullmatch(r"(\d{1,18})(KiB|MiB|GiB)?", text)
    if size is None:
        raise InputError(f"{option} wants a size, not '{text}'", hint="write it like 1GiB, or in bytes")
    return int(size[1]) << {None: 0, "KiB": 10, "MiB": 20, "GiB": 30}[size[2]]


def format_bytes(size: int) -> str:
    """Format a size in binary units."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"
