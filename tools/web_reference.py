"""The reference of the browser runner as Markdown, from the doc comments and types of ``shaderloom.d.ts``.

``python -m tools.web_reference`` writes it into docs/guide/web.md, between the lines that say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guide" / "web.md"
#: What a page uses, in this order; the bundle's JSON is in bundles.md
NAMES = (
    "load",
    "BundleSource",
    "LoadOptions",
    "Progress",
    "Session",
    "Feed",
    "RunOptions",
    "CpuTensor",
    "GpuTensor",
    "TensorView",
    "RecoverOptions",
    "CallTime",
    "Sample",
    "ShaderloomError",
    "evaluate",
)
_BEGIN = "<!-- generated from shaderloom.d.ts by python -m tools.web_reference -->"
_END = "<!-- end of what is generated -->"

_COMMENT = r"(?:/\*\*(?P<comment>(?:(?!\*/).)*)\*/\s*)?"
_DECLARATION = re.compile(
    _COMMENT + r"export (?P<kind>interface|class|type|function) (?P<name>\w+)(?P<rest>.*?)(?=\n(?:/\*\*|export |\Z))",
    re.DOTALL,
)
_MEMBER = re.compile(_COMMENT + r"(?P<member>(?:readonly )?[\w]+[?(:<](?:[^;{}]|\{[^{}]*\})*);", re.DOTALL)


def reference() -> str:
    """Return a section for each of :data:`NAMES`, with a table of its members."""
    text = (ROOT / "runtime" / "web" / "shaderloom.d.ts").read_text(encoding="utf-8")
    declared = {match["name"]: match for match in _DECLARATION.finditer(text)}
    return "\n".join(line for name in NAMES for line in _section(declared[name]))


def page(text: str) -> str:
    """Return the page with what is generated in its place."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n{reference()}\n{_END}{after}"


def _section(declaration: re.Match[str]) -> Iterator[str]:
    kind, name, rest = declaration["kind"], declaration["name"], declaration["rest"]
    yield from (f"### {name}", "")
    if kind in ("type", "function"):
        yield from (f"`{_line(kind + ' ' + name + rest).removesuffix(';')}`", "")
    head, _, body = rest.partition("{") if kind in ("interface", "class") else (rest, "", "")
    extended = re.match(r"\s*extends (\w+)", head)
    prose = [_prose(declaration["comment"])] if declaration["comment"] else []
    if extended and kind == "interface":
        prose.append(f"It has what [{extended[1]}](#{extended[1].lower()}) has.")
    if prose:
        yield from (_wrapped(" ".join(prose)), "")
    members = list(_MEMBER.finditer(body.rpartition("}")[0]))
    if members:
        yield from ("| | |", "|---|---|")
        yield from (
            f"| `{_cell(_line(item['member']))}` | {_cell(_prose(item['comment'] or ''))} |" for item in members
        )
        yield ""


def _prose(comment: str) -> str:
    return _line(re.sub(r"^\s*\* ?", "", comment, flags=re.MULTILINE))


def _line(text: str) -> str:
    return re.sub(r"\( ", "(", " ".join(text.split())).replace(", )", ")")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _wrapped(text: str, width: int = 120) -> str:
    lines = [""]
    for word in re.findall(r"(?:`[^`]*`|\S)+", text):
        if len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".lstrip()
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
