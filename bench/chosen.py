"""What a command line names, separated by commas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Item = TypeVar("Item")


def chosen(names: str, among: Mapping[str, Item]) -> list[Item]:
    """Return the items that ``names`` lists, in the order of ``among``; all of them if it is empty.

    Raises SystemExit for a name that is none of them.
    """
    wanted = [name for name in names.split(",") if name]
    unknown = [name for name in wanted if name not in among]
    if unknown:
        raise SystemExit(f"there is no {', '.join(unknown)}; there are {', '.join(among)}")
    return [item for name, item in among.items() if name in wanted or not wanted]
