"""The public names: each is documented, and is in the reference of the API.

Covers: shaderloom/__init__.py, docs/reference/, tools/cli_reference.py.
"""

import inspect
import re
import typing
from pathlib import Path

import pytest

import shaderloom
from tools.cli_reference import cli_reference

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
NAMES = [name for name in shaderloom.__all__ if not name.startswith("__")]


def undocumented(value, name):
    """Names of what has no docstring of its own: the value, and of a class the public functions and properties.

    Types that are unions cannot have one: the reference describes them.
    """
    if not value.__doc__ and typing.get_origin(value) is not typing.Union:
        yield name
    for owner in inspect.getmro(value) if inspect.isclass(value) else ():
        for member, raw in vars(owner).items() if owner.__module__.startswith("shaderloom") else ():
            function = getattr(raw, "__func__", raw)
            if not member.startswith("_") and (inspect.isfunction(function) or isinstance(raw, property)):
                if not function.__doc__:
                    yield f"{name}.{member}"


@pytest.mark.parametrize("name", NAMES)
def test_every_public_member_has_a_docstring(name):
    assert list(undocumented(getattr(shaderloom, name), name)) == []


def test_members_without_docstrings_are_noticed():
    class Plain:
        def method(self): ...

        @property
        def value(self): ...

        @classmethod
        def make(cls): ...

        def _inner(self): ...

    Plain.__module__ = "shaderloom.example"
    assert list(undocumented(Plain, "P")) == ["P", "P.method", "P.value", "P.make"]


def test_the_reference_has_every_public_name_once():
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(REFERENCE.glob("*.rst")))
    listed = re.findall(r"^\.\. (?:py:data|auto(?:class|function|exception)):: shaderloom\.(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


def test_every_option_of_every_command_says_what_it_is():
    text = cli_reference()
    sections = dict(re.findall(r"^## (shaderloom [\w ]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert {"shaderloom run", "shaderloom serve", "shaderloom cache clear"} <= set(sections)
    assert r"| `--dynamic` `auto\|off\|NAME=LOW:HIGH[:STEP]` |" in sections["shaderloom run"]
    assert "\nshaderloom run resnet50.onnx\n" in sections["shaderloom run"]
    assert re.findall(r"^.*\|  \|$", text, re.MULTILINE) == []
