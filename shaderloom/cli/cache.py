"""``shaderloom cache``: show or empty the disk cache of compiled plans."""

from __future__ import annotations

import typer

from .command import as_command
from .common import format_bytes, print_json
from .options import JsonOption
from .terminal import echo

app = typer.Typer(help="Look at the disk cache of compiled plans, or empty it.", no_args_is_help=True)


@app.command("info")
@as_command
def info(as_json: JsonOption = False) -> None:
    """Show the cache folder and its size. SHADERLOOM_CACHE names another folder, or 'off'."""
    from ..cache import open_cache

    cache = open_cache()
    if cache is None:
        if as_json:
            print_json({"folder": None, "entries": 0, "size": 0, "limit": 0})
        else:
            echo("the disk cache is off")
        return
    state = cache.info()
    if as_json:
        print_json({"folder": str(state.folder), "entries": state.entries, "size": state.size, "limit": state.limit})
    else:
        echo(f"{state.folder}")
        echo(f"{_entries(state.entries)}, {format_bytes(state.size)} of at most {format_bytes(state.limit)}")


@app.command("clear")
@as_command
def clear() -> None:
    """Remove every entry. Plans are recompiled when they are needed."""
    from ..cache import open_cache

    cache = open_cache()
    removed = cache.clear() if cache is not None else 0
    echo(f"{_entries(removed)} removed")


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
