"""The Jinja templates: a folder for each kind of kernel, and a strict environment in which an undefined name is an
error.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any

import jinja2

from ...runtime.plan.errors import InternalError
from .template_bytecode import TemplateBytecode

_SUFFIX = ".wgsl.j2"

#: How templates are read; compiled ones depend on it
_OPTIONS: dict[str, Any] = {
    "trim_blocks": True,
    "lstrip_blocks": True,
    "keep_trailing_newline": True,
    "autoescape": False,
}


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Return the template environment, shared by all compilations of the process."""
    root = resources.files("shaderloom.templates")

    def source(name: str) -> str | None:
        path = root / name
        return path.read_text(encoding="utf-8") if path.is_file() else None

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=TemplateBytecode(str(root), repr(_OPTIONS)),
        **_OPTIONS,
    )


@lru_cache(maxsize=1)
def _kernel_files() -> dict[str, str]:
    """Map names of kernel templates to paths below the folder of templates; names are unique among all folders."""
    files: dict[str, str] = {}
    for folder in resources.files("shaderloom.templates").iterdir():
        if not folder.is_dir():
            continue
        for file in folder.iterdir():
            if file.name.endswith(_SUFFIX):
                name = file.name.removesuffix(_SUFFIX)
                if name in files:
                    raise InternalError(f"there are two templates '{name}': {files[name]}, {folder.name}/{file.name}")
                files[name] = f"{folder.name}/{file.name}"
    return files


def kernel_file(name: str) -> str:
    """Return the path of a kernel's template by its name, which plans show."""
    file = _kernel_files().get(name)
    if file is None:
        raise InternalError(f"there is no template '{name}'")
    return file
