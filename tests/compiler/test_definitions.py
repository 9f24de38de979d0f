"""Definitions: a look-up imports one module, whatever state the index is in, and never misses a definition.

Covers: compiler/definitions, runtime/plan/bytecode_file.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shaderloom.compiler.definitions import Definitions

_numbers = itertools.count()

#: The modules of a package, in which ``TABLE`` is the table that they add to
SOURCES = {
    "__init__.py": "",
    "table.py": "from shaderloom.compiler.definitions import Definitions\nTABLE = Definitions(__package__)\n",
    "one.py": "from .table import TABLE\nTABLE.add('a', 1)\nTABLE.add('b', 2)\n",
    "two.py": "from .table import TABLE\nTABLE.add('c', 3)\n",
    "inner/__init__.py": "",
    "inner/three.py": "from ..table import TABLE\nTABLE.add(('d', 'e'), 4)\n",
}

Start = Callable[[], tuple[Definitions, Callable[[], set[str]]]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that no other test has imported."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / f"defining{next(_numbers)}"
    for name, text in SOURCES.items():
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(text)
    return package


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Return a function that imports the package as a new process does: its table, and the modules it has so far."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
            del sys.modules[name]

    def start_again() -> tuple[Definitions, Callable[[], set[str]]]:
        forget()
        module = __import__(f"{folder.name}.table", fromlist=["TABLE"])
        return module.TABLE, lambda: {
            name.rpartition(".")[2] for name in sys.modules if name.startswith(f"{folder.name}.")
        }

    yield start_again
    forget()


def test_the_first_process_imports_all_and_the_next_one_module(start: Start) -> None:
    table, modules = start()
    assert (table.find("c"), table.find("a"), table.find(("d", "e")), table.find("x")) == (3, 1, 4, None)
    assert modules() == {"table", "one", "two", "inner", "three"}
    table, modules = start()
    assert (table.find("c"), modules()) == (3, {"table", "two"})
    assert (table.find("x"), modules()) == (None, {"table", "two"})
    assert (table.find(("d", "e")), modules()) == (4, {"table", "two", "inner", "three"})
    assert list(table.present()) == [3, 4]
    assert sorted(table.all()) == [1, 2, 3, 4]


def test_other_sources_make_another_index(start: Start, folder: Path) -> None:
    start()[0].find("a")
    (folder / "two.py").write_text("from .table import TABLE\nTABLE.add('x', 55)\n")
    table, _ = start()
    assert (table.find("x"), table.find("c")) == (55, None)
    (folder / "inner" / "four.py").write_text("from ..table import TABLE\nTABLE.add('c', 66)\n")
    table, modules = start()
    assert (table.find("c"), table.find("a")) == (66, 1)
    os.utime(folder / "one.py", ns=(1, 1))
    table, modules = start()
    assert table.find("c") == 66
    assert "one" in modules()
    os.remove(folder / "inner" / "four.py")
    assert start()[0].find("c") is None


@pytest.mark.parametrize("damage", [b"", b"rubbish", None])
def test_without_an_index_all_modules_are_imported(
    start: Start, folder: Path, damage: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()[0].find("a")
    (index,) = (folder / "__pycache__").glob("definitions.*")
    right = index.read_bytes()
    if damage is None:
        index.unlink()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
    else:
        index.write_bytes(damage)
    table, modules = start()
    assert (table.find("b"), "three" in modules()) == (2, True)
    assert (not index.exists()) if damage is None else index.read_bytes() == right


def test_a_key_is_defined_once(start: Start) -> None:
    start()[0].find("a")
    table, modules = start()
    assert not table.add("c", 9)  # of a module that was not imported before
    assert table.find("c") == 3
    assert table.add("x", 9)
    assert not table.add("x", 10)
    assert (table.find("x"), "one" in modules()) == (9, False)


def test_code_that_is_no_module_defines_too(start: Start) -> None:
    table, _ = start()
    program = "added = table.add('x', 9), table.add('x', 10), table.add('a', 11)"
    names = {"table": table, "__name__": "a program"}
    exec(compile(program, "<program>", "exec"), names)
    assert (names["added"], table.find("x"), table.find("a")) == ((True, False, False), 9, 1)


@pytest.mark.parametrize("indexed", [True, False])
def test_what_an_interrupted_module_defined_does_not_count(start: Start, folder: Path, indexed: bool) -> None:
    text = "import sys\nfrom .table import TABLE\nTABLE.add('c', object())\nif sys.stop: raise KeyboardInterrupt\n"
    (folder / "two.py").write_text(text)
    sys.stop = False  # type: ignore[attr-defined]
    try:
        if indexed:
            start()[0].find("a")
        table, _ = start()
        sys.stop = True  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt):
            table.find("c")
        (half,) = (each for each in table.present() if not isinstance(each, int))
        sys.stop = False  # type: ignore[attr-defined]
        whole = table.find("c")
        assert whole is not None
        assert whole is not half
        assert table.find("c") is whole
        assert (table.find("a"), table.find(("d", "e"))) == (1, 4)
    finally:
        del sys.stop  # type: ignore[attr-defined]


def test_a_module_may_look_up_while_it_is_imported(start: Start, folder: Path) -> None:
    (folder / "one.py").write_text("from .table import TABLE\nTABLE.add('a', TABLE.find('c'))\n")
    (folder / "two.py").write_text("from .table import TABLE\nTABLE.add('c', 3)\nTABLE.add('f', TABLE.find('g'))\n")
    for _ in range(3):
        table, _ = start()
        assert (table.find("a"), table.find("c"), table.find(("d", "e"))) == (3, 3, 4)
