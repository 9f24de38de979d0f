"""Comparisons of sizes that no program has: changes of a manifest, and the rules by which both readers refuse them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Change = Callable[[Any], None]


def _comparison(**fields: Any) -> Change:
    """Replace fields of the comparison at the end of a program."""

    def change(root: Any) -> None:
        root["programs"][0]["steps"][-1].update(fields)

    return change


def _less(side: str) -> Change:
    """Leave the last step of one side out."""

    def change(root: Any) -> None:
        step = root["programs"][0]["steps"][-1]
        while step[side][-1]["kind"] == "compare":
            step = step[side][-1]
        step[side].pop()

    return change


def _followed(root: Any) -> None:
    root["programs"][0]["steps"].append({"kind": "alias", "value": "q", "source": "x"})


def _unread(root: Any) -> None:
    """Compare before the sizes are read."""
    steps = root["programs"][0]["steps"]
    steps[:-1] = [step for step in steps[:-1] if step["kind"] != "read"]


#: By name: a change of the manifest of a program that ends with a comparison, and the rule by which it is refused
COMPARISONS: dict[str, tuple[Change, str]] = {
    "another test": (_comparison(test="greater"), "choice"),
    "a test that is no text": (_comparison(test=1), "choice"),
    "a size of no symbol": (_comparison(left="no"), "symbol"),
    "a size that is a value": (_comparison(right=["+", "x", 1]), "symbol"),
    "a size that is none": (_comparison(left=None), "number"),
    "a size divided by zero": (_comparison(left=["//", 7, 0]), "size"),
    "a size beyond what can be counted": (_comparison(right=["*", 2**52, 2]), "overflow"),
    "a size below what can be counted": (_comparison(right=["*", -(2**52), 2]), "overflow"),
    "sides that are no lists": (_comparison(true={}), "type"),
    "a side without the results": (_comparison(false=[]), "result"),
    "a side without its last step": (_less("true"), "result"),
    "a step behind it": (_followed, "last step"),
    "a size that is not read": (_unread, "symbol"),
}
