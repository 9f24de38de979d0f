"""Examples of every operator, in a file beside (``onnx/``, ``microsoft/``, ``ml/``) each file of ``compiler/ops``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from shaderloom.compiler.ops.registry import OpDef

from .case import Case

#: The folder that has the cases of a domain
FOLDERS = {"": "onnx", "com.microsoft": "microsoft", "ai.onnx.ml": "ml"}


@cache
def _cases_of_domain(domain: str) -> dict[str, tuple[Case, ...]]:
    folder = importlib.import_module(f"{__name__}.{FOLDERS[domain]}")
    result: dict[str, tuple[Case, ...]] = {}
    for entry in pkgutil.iter_modules(folder.__path__):
        for name, cases in importlib.import_module(f"{folder.__name__}.{entry.name}").CASES.items():
            if name in result:
                raise ValueError(f"{name} has cases in {entry.name}.py and in another file")
            result[name] = tuple(cases)
    return result


def cases_of(definition: OpDef) -> tuple[Case, ...]:
    """Return the cases of an operator; none for an internal one, and for one that has no entry in a file."""
    return _cases_of_domain(definition.domain).get(definition.name, ()) if definition.domain in FOLDERS else ()


def case_names(domain: str) -> set[str]:
    """Return the names of the operators of ``domain`` that have cases."""
    return set(_cases_of_domain(domain))
