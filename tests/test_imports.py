"""Imports run one way, and a program loads no more than it uses."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import networkx
import pytest

from .support.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = {
    "shaderloom": ROOT / "shaderloom",
    "shaderloom.compiler": ROOT / "compiler",
    "shaderloom.runtime": ROOT / "runtime",
    "shaderloom.templates": ROOT / "templates",
}

HEAVY = {"onnx", "jinja2", "networkx", "google", "onnxruntime"}


def modules():
    """(dotted name, path) of every module."""
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if package == "shaderloom" and f"shaderloom.{parts[0]}" in PACKAGES:  # reached by a link
                continue
            if parts[-1] == "__init__":
                parts = parts[:-1]
            yield ".".join((package, *parts)), path


def imports_of(name: str, path: Path, *, for_types: bool):
    """Dotted names that a module imports, inside functions too; with ``for_types`` those for type checkers too."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in _statements(tree, for_types):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            target = ".".join((*base, *([node.module] if node.module else [])))
            yield target
            yield from (f"{target}.{alias.name}" for alias in node.names)


def _statements(tree: ast.AST, for_types: bool):
    for node in ast.iter_child_nodes(tree):
        if not for_types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _statements(node, for_types)


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize(("name", "path"), [pytest.param(*item, id=item[0]) for item in modules()])
def test_imports_run_one_way(name, path):
    imported = set(imports_of(name, path, for_types=False))
    if is_within(name, "shaderloom.runtime"):
        assert not {other for other in imported if other.split(".")[0] in HEAVY}
        assert not {other for other in imported if is_within(other, "shaderloom.compiler")}
        assert not {other for other in imported if is_within(other, "shaderloom.templates")}
        inner = {other for other in imported if is_within(other, "shaderloom")}
        assert all(is_within(other, "shaderloom.runtime") for other in inner), inner
    elif is_within(name, "shaderloom.compiler"):
        for other in imported:
            if is_within(other, "shaderloom.runtime"):
                assert is_within(other, "shaderloom.runtime.plan"), other
        allowed = ("shaderloom.compiler", "shaderloom.runtime", "shaderloom.templates")
        inner = {other for other in imported if is_within(other, "shaderloom")}
        assert all(any(is_within(other, package) for package in allowed) for other in inner), inner
        assert "wgpu" not in {other.split(".")[0] for other in imported}


def parted(source: Path, target: Path) -> tuple[str, str, str]:
    """Return the innermost folder that has both modules, and its two entries in which they are."""
    left, right = (path.relative_to(ROOT).with_suffix("").parts for path in (source, target))
    depth = next(depth for depth, entries in enumerate(zip(left, right)) if entries[0] != entries[1])
    return "/".join(left[:depth]), left[depth], right[depth]


def test_what_a_folder_has_is_in_an_order():
    """No circle of imports between the modules and folders that any folder has, so none between modules at all.

    Imports inside functions and those for type checkers count.
    """
    names = dict(modules())
    graphs: dict[str, networkx.DiGraph] = {}
    for name, path in names.items():
        if name == "shaderloom":  # the public names, each loaded when it is first used
            continue
        found = {other for other in imports_of(name, path, for_types=True) if other in names}
        # ``from .package import module`` names both; a package's own file does not depend on its modules by that
        packages = {other for other in found if any(is_within(deeper, other) for deeper in found - {other})}
        for other in found - packages - {name}:
            folder, source, target = parted(path, names[other])
            graphs.setdefault(folder, networkx.DiGraph()).add_edge(source, target)
    circles = {
        folder: [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1]
        for folder, graph in graphs.items()
    }
    assert {folder: groups for folder, groups in circles.items() if groups} == {}


def test_folders_are_small_and_say_their_job():
    folders: dict[Path, list[Path]] = {}
    for _, path in modules():
        folders.setdefault(path.parent, []).append(path)
    large = {str(folder.relative_to(ROOT)) for folder, files in folders.items() if len(files) > 31}
    assert large <= {"compiler/ops/onnx"}  # a file for each family of the standard's operators
    silent = [folder for folder in folders if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))]
    assert silent == []


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules, sep='\\n')"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    return set(result.stdout.split())


@pytest.mark.parametrize(
    ("statement", "banned"),
    [
        ("import shaderloom", {"numpy", "wgpu", "onnx", "shaderloom.compiler", "shaderloom.runtime"}),
        ("import shaderloom; shaderloom.InputError", {"numpy", "wgpu", "onnx", "shaderloom.compiler"}),
        (
            "import shaderloom; shaderloom.InferenceSession",
            {"onnx", "jinja2", "networkx", "shaderloom.compiler.frontend"},
        ),
        ("import shaderloom.runtime.execution.executor", {"onnx", "jinja2", "networkx", "shaderloom.compiler"}),
        ("import shaderloom; shaderloom.load_bundle", {"onnx", "jinja2", "networkx", "shaderloom.compiler"}),
        ("import shaderloom.cli", {"numpy", "wgpu", "onnx", "jinja2", "networkx", "shaderloom.session.session"}),
    ],
)
def test_names_are_loaded_lazily(statement, banned):
    assert loaded_after(statement) & banned == set()


def test_every_public_name_exists():
    import shaderloom

    for name in shaderloom.__all__:
        assert getattr(shaderloom, name) is not None
        assert name in dir(shaderloom)
    with pytest.raises(AttributeError):
        shaderloom.surely_not  # noqa: B018
