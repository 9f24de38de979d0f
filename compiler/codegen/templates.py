"""The environment of the Jinja templates.  It is strict: an undefined name is an error."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import jinja2


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The template environment, shared by all compilations of the process."""
    root = resources.files("shaderloom.templates")

    def source(name: str) -> str | None:
        path = root / name
        return path.read_text(encoding="utf-8") if path.is_file() else None

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
