"""The project's addresses, which ``[tool.shaderloom]`` in pyproject.toml holds once, and links that begin with them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?![a-z]+:|#)([^)\s]+)\)")
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


@dataclass(frozen=True)
class Addresses:
    """The address of the repository on its forge, without a slash at the end, and the one for reports; "" if unset."""

    repository: str
    contact: str

    @property
    def missing(self) -> list[str]:
        """Names of the addresses that are not set."""
        return [name for name in ("repository", "contact") if not getattr(self, name)]

    def file(self, path: str, tag: str) -> str:
        """Return the address of the page of a file or folder of the repository, as it is at ``tag``."""
        return f"{self.repository}/blob/{tag}/{path}"

    def picture(self, path: str, tag: str) -> str:
        """Return the address of a file's bytes, as they are at ``tag``."""
        return f"{self.repository}/raw/{tag}/{path}"


def read_addresses(root: Path) -> Addresses:
    """Read the addresses from the pyproject.toml in ``root``; raise ValueError for one that is not well-formed."""
    table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["shaderloom"]
    addresses = Addresses(table["repository"], table["contact"])
    if addresses.repository and not re.fullmatch(r"https://[^\s/]+/\S*[^\s/]", addresses.repository):
        raise ValueError(f"tool.shaderloom.repository is '{addresses.repository}', not https://HOST/PATH")
    if addresses.contact and not re.fullmatch(r"[^\s@]+@[^\s@]+", addresses.contact):
        raise ValueError(f"tool.shaderloom.contact is '{addresses.contact}', not an address of mail")
    return addresses


def map_links(text: str, target: Callable[[str, bool], str | None]) -> str:
    """Replace the relative links of a Markdown text, outside of code.

    ``target(path, is_picture)`` returns the new target, or None for a link that becomes plain text.
    """

    def replace(link: re.Match[str]) -> str:
        picture, label, path = link.groups()
        label = _LINK.sub(replace, label)  # a picture that is a link
        new = target(path, bool(picture))
        return label if new is None else f"{picture}[{label}]({new})"

    parts = _CODE.split(text)  # odd ones are code
    return "".join(part if number % 2 else _LINK.sub(replace, part) for number, part in enumerate(parts))
