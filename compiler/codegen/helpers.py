"""The helper functions of kernels: their texts, and which call which.

Each is a macro of one parameter, the lane suffix ``s``, in a file of ``templates/functions``; a file is one subject.
Only the helpers that a kernel calls are declared in it, and only the files that hold them are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources

from ...runtime.plan.errors import InternalError
from .templates import environment

FOLDER = "functions"
_MACRO = re.compile(r"{% macro (\w+)\(s\) %}")

#: What each helper calls
_DEPENDENCIES: dict[str, tuple[str, ...]] = {
    "abs_i64": ("neg_i64",),
    "div_u64": ("lt_u64", "add_i64", "sub_i64"),
    "mod_u64": ("div_u64", "mul_i64", "sub_i64"),
    "fmod_u64": ("div_u64", "mul_i64", "sub_i64"),
    "div_i64": ("abs_i64", "neg_i64", "div_u64"),
    "fmod_i64": ("div_i64", "mul_i64", "sub_i64"),
    "mod_i64": ("fmod_i64", "add_i64"),
    "min_i64": ("lt_i64",),
    "max_i64": ("lt_i64",),
    "min_u64": ("lt_u64",),
    "max_u64": ("lt_u64",),
    "pow_i64": ("pow_u64",),
    "pow_u64": ("mul_i64",),
    "sub_i64": ("neg_i64", "add_i64"),
    "neg_i64": ("add_i64",),
    "i64_to_f32": ("neg_i64",),
    "f32_to_i64": ("neg_i64",),
    "f32_to_u64": ("f32_to_i64",),
    "floor_mod_f32": ("isinf",),
    "floor_mod_i32": ("fmod_i32",),
    "min_f32": ("isnan",),
    "max_f32": ("isnan",),
    "pow": ("isnan", "isinf", "not_a_number", "infinity", "positive_pow"),
    "positive_pow": ("leading",),
    "log": ("log_near", "log_limits"),
    "log1p": ("log_near", "log_limits"),
    "log_limits": ("not_a_number", "infinity"),
    "expm1": ("exp",),
    "sinh": ("exp",),
    "cosh": ("exp",),
    "tanh": ("isnan",),
    "asinh": ("log1p",),
    "acosh": ("log1p", "isnan", "not_a_number"),
    "atanh": ("log1p", "isnan", "not_a_number"),
    "erf": ("erfc_tail", "isnan"),
    "erfc": ("erfc_tail", "isnan"),
    "sin": ("reduce_angle", "sine"),
    "cos": ("reduce_angle", "sine"),
    "tan": ("reduce_angle", "sine"),
    "reduce_angle": ("angle", "far_angle", "isnan"),
    "far_angle": ("angle", "mul_i64", "add_i64", "neg_i64", "not_a_number"),
    "extend_range": ("range_registers",),
    "asin": ("half_asin", "not_a_number"),
    "acos": ("half_asin", "not_a_number"),
}

#: Helpers that exist for scalars alone
_SCALAR = frozenset({"range_registers", "infinity", "not_a_number", "far_angle", "mul_i64", "add_i64", "neg_i64"})


def with_dependencies(wanted: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return all (helper, lane suffix) pairs to declare, dependencies before callers, in a deterministic order."""
    ordered: dict[tuple[str, str], None] = {}
    for name, suffix in sorted(wanted):
        _add(ordered, name, suffix)
    return list(ordered)


def _add(ordered: dict[tuple[str, str], None], name: str, suffix: str) -> None:
    for dependency in _DEPENDENCIES.get(name, ()):
        _add(ordered, dependency, "1" if dependency in _SCALAR else suffix)
    ordered[name, suffix] = None


@lru_cache(maxsize=1)
def helper_files() -> dict[str, str]:
    """Map every helper to the template that defines its macro."""
    folder = resources.files("shaderloom.templates") / FOLDER
    return {
        name: f"{FOLDER}/{file.name}"
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        for name in _MACRO.findall(file.read_text(encoding="utf-8"))
    }


@lru_cache(maxsize=256)
def helper_text(name: str, suffix: str) -> str:
    """Return the WGSL of a helper function for one lane ("1") or four ("4")."""
    file = helper_files().get(name)
    if file is None:
        raise InternalError(f"there is no WGSL helper '{name}'")
    macro = getattr(environment().get_template(file).module, name)
    return str(macro("4" if suffix == "4" else "1")).strip("\n")
