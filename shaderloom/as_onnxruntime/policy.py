"""Which providers a program gets for those that it names.

Most programs pin ``CPUExecutionProvider`` or look for CUDA, because that is what they could have.  So the list of a
program counts only if the variable ``SHADERLOOM_PROVIDERS`` says so:

===========================  =========================================================
``wgpu,cpu`` (the default)   the device, and the cpu for what it cannot run
``wgpu``, ``cpu``            that one alone
``program``                  what the program names: a name of any vendor's GPU or other
                             accelerator is the device, the cpu its fallback
===========================  =========================================================
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..api.providers import ALIASES
from ..runtime.plan.errors import InputError, ShaderloomError, printable

VARIABLE = "SHADERLOOM_PROVIDERS"
_DEFAULT = "wgpu,cpu"
_OF_PROGRAM = "program"

#: Ours -> onnxruntime's name
ORT_NAMES = {"wgpu": "WebGpuExecutionProvider", "cpu": "CPUExecutionProvider"}

#: onnxruntime's providers, in its order of preference
ALL_PROVIDERS = tuple(
    f"{name}ExecutionProvider"
    for name in (
        "Tensorrt CUDA MIGraphX OpenVINO Dnnl VitisAI QNN Nnapi VSINPU Js CoreML Dml Rknpu WebNN WebGpu Xnnpack CANN "
        "Azure CPU"
    ).split()
)

#: Those that compute on the host; all others are accelerators
_HOST = {f"{name}ExecutionProvider" for name in ("CPU", "Azure", "Dnnl", "Xnnpack", "ACL", "ArmNN")} | {"cpu"}

_reported: set[str] = set()


def select(asked: Sequence[str] | None) -> list[str]:
    """Return our providers, in order, for the names that a program passes.

    Raises :class:`InputError` for a variable that is no such list.
    """
    text = os.environ.get(VARIABLE, "").strip() or _DEFAULT
    if text == _OF_PROGRAM:
        return list(dict.fromkeys([*map(_meaning, asked), "cpu"])) if asked else _DEFAULT.split(",")
    names = [name.strip() for name in text.split(",")]
    if not set(names) <= set(ALIASES):
        raise InputError(f"the variable {VARIABLE} is '{text}'", hint=f"use wgpu,cpu or wgpu or cpu or {_OF_PROGRAM}")
    return list(dict.fromkeys(ALIASES[name] for name in names))


def split_options(
    providers: Sequence[Any] | None, provider_options: Sequence[Mapping[str, Any]] | None
) -> tuple[list[str], dict[str, Any]]:
    """Return the names in a program's list, and its options for WebGPU; those for others mean nothing here."""
    names: list[str] = []
    options: dict[str, Any] = {}
    for index, entry in enumerate([providers] if isinstance(providers, str) else providers or ()):
        name, own = (str(entry[0]), entry[1]) if isinstance(entry, tuple) else (str(entry), {})
        names.append(name)
        if ALIASES.get(name) == "wgpu":
            options.update(provider_options[index] if provider_options else {})
            options.update(own)
    return names, options


def report(asked: Sequence[str], got: Sequence[str]) -> None:
    """Say on standard error, once for each pair, what sessions that asked for some providers run on."""
    text = (
        f"sessions that ask for {', '.join(asked) or 'no provider'} get {', then '.join(got)} "
        f"[{VARIABLE} chooses: wgpu,cpu or wgpu or cpu or {_OF_PROGRAM}]"
    )
    if text not in _reported:
        _reported.add(text)
        say(text)


def say(text: str, _: object = None) -> None:
    """Print a line on standard error, where the program has one that is open."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed
            print(f"shaderloom: {printable(in_words_of_policy(text))}", file=sys.stderr, flush=True)


def in_words_of_policy(text: str) -> str:
    """Return a text with the variable in place of an argument ``providers``, which means nothing here."""
    for names in (["wgpu", "cpu"], ["cpu"]):
        text = text.replace(f"providers={names}", f"{VARIABLE}={','.join(names)}")
    return text


def reword(error: ShaderloomError) -> None:
    """Put the hint of an error into the words of the policy."""
    error.hint = in_words_of_policy(error.advice)


def _meaning(name: str) -> str:
    return "cpu" if name in _HOST else "wgpu"
