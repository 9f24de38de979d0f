"""Providers: their names, which of them are available, and why the others are not."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..notices import notify
from ..runtime.plan.errors import DeviceError, InputError, ShaderloomError, UnsupportedError
from . import real_onnxruntime
from .arguments import entries

#: name -> provider; names with capitals are ONNX Runtime's
ALIASES = {
    "wgpu": "wgpu",
    "webgpu": "wgpu",
    "WebGpuExecutionProvider": "wgpu",
    "JsExecutionProvider": "wgpu",
    "cpu": "cpu",
    "CPUExecutionProvider": "cpu",
}

_OPTIONS = "provider_options is a list of dicts, one for each provider"

#: Initialises a provider, or raises an error that states why it is unavailable
Initialise = Callable[[Mapping[str, Any]], None]


def parse_providers(
    wanted: Sequence[Any] | None,
    provider_options: Sequence[Mapping[str, Any]] | None = None,
    *,
    severity: int = -1,
) -> list[tuple[str, dict[str, Any]]]:
    """Return (provider, options) pairs in the caller's order; None and an empty list select wgpu.

    Duplicates merge and the options of the first occurrence win.  As in onnxruntime an entry is a name or a pair of
    name and options, and a provider of onnxruntime's that is not available is dropped with a warning.  Raises
    :class:`InputError` for any other unknown name, and if no provider remains.
    """
    if wanted is None or (isinstance(wanted, (list, tuple)) and not wanted):
        if provider_options:
            raise InputError("provider options need a list of providers")
        return [("wgpu", {})]
    if isinstance(wanted, str):
        raise InputError("providers is a list of names", hint=f"write ['{wanted}']")
    listed = [_pair(entry) for entry in entries(wanted, "providers is a list of names", "providers=['wgpu', 'cpu']")]
    general = [{}] * len(listed) if provider_options is None else entries(provider_options, _OPTIONS)
    if len(general) != len(listed):
        raise InputError(f"there are {len(general)} provider options for {len(listed)} providers")
    chosen: dict[str, dict[str, Any]] = {}
    foreign: list[str] = []
    is_own_name = False
    for (name, options), others in zip(listed, general, strict=True):
        if not isinstance(others, Mapping):
            raise InputError(f"{_OPTIONS}; {others!r:.80} is none")
        is_own_name |= name == "cpu"
        if name not in ALIASES:
            if name.endswith("ExecutionProvider"):
                foreign.append(name)
                continue
            raise InputError(f"there is no provider '{name}'", hint=f"known are {', '.join(ALIASES)}")
        merged = {**others, **options}
        present = chosen.setdefault(ALIASES[name], {})
        present.update({key: value for key, value in merged.items() if key not in present})
    if not chosen and foreign:
        raise InputError(f"there is no provider '{foreign[0]}'", hint=f"known are {', '.join(ALIASES)}")
    for name in foreign:
        notify(f"provider '{name}' is dropped: it is onnxruntime's alone", severity=severity)
    if list(chosen) == ["cpu"] and not is_own_name:
        notify(
            "providers=['CPUExecutionProvider'] runs on the cpu; with 'wgpu' in the list the model runs on the device, "
            "and so does a program under 'python -m shaderloom.as_onnxruntime PROGRAM.py', unchanged",
            once="cpu alone",
            severity=severity,
        )
    return list(chosen.items())


def _pair(entry: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the name of a provider and the options beside it.  Raises :class:`InputError` for anything else."""
    name, options = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, {})
    if not isinstance(name, str) or not isinstance(options, Mapping):
        reason = f"a provider is a name, or a pair of a name and its options, not {entry!r:.80}"
        raise InputError(reason, hint=f"names are {', '.join(ALIASES)}")
    return name, options


def initialise_providers(
    wanted: Sequence[tuple[str, Mapping[str, Any]]], makers: Mapping[str, Initialise], *, severity: int = -1
) -> tuple[str, ...]:
    """Initialise each provider, in order, and return those that are available.

    A provider that fails is dropped with a warning that states the reason.  If none remains, the error lists all
    reasons; with a single provider it is that provider's own error.
    """
    ready: list[str] = []
    failures: list[tuple[str, ShaderloomError]] = []
    for name, options in wanted:
        try:
            makers[name](options)
        except (DeviceError, UnsupportedError) as error:
            failures.append((name, error))
        else:
            ready.append(name)
    if not ready:
        if len(failures) == 1:
            raise failures[0][1]
        reasons = "; ".join(f"'{name}': {error}" for name, error in failures)
        raise DeviceError(f"none of the providers is available: {reasons}") from failures[0][1]
    for name, reason in failures:
        notify(f"provider '{name}' is dropped: {reason}", severity=severity)
    return tuple(ready)


def cpu_packages() -> list[str]:
    """Return the installed packages that the cpu provider can use, best first."""
    packages = ["onnxruntime"] if real_onnxruntime.is_installed() else []
    return [*packages, "onnx"] if _is_installed("onnx") else packages


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # a finder that refuses, or a stand-in without a specification
        return False


def get_available_providers() -> list[str]:
    """Return the providers that a session can use on this machine, in order of preference."""
    from ..runtime.device.adapters import list_adapters

    names = []
    try:
        if list_adapters():
            names.append("wgpu")
    except DeviceError:
        pass
    if cpu_packages():
        names.append("cpu")
    return names


def get_device() -> str:
    """Return ``"GPU"`` if there is an adapter that is not a software one, else ``"CPU"``, as onnxruntime does."""
    from ..runtime.device.adapters import list_adapters

    try:
        return "GPU" if any(not adapter.is_software for adapter in list_adapters()) else "CPU"
    except DeviceError:
        return "CPU"
