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


def imports_of(name: str, path: Path, *, lazy: bool, for_types: bool = False):
    """Dotted names that a module imports: with ``lazy`` also inside functions, with ``for_types`` also for checkers."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in _statements(tree, lazy, for_types):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            target = ".".join((*base, *([node.module] if node.module else [])))
            yield target
            yield from (f"{target}.{alias.name}" for alias in node.names)


def _statements(tree: ast.AST, lazy: bool, for_types: bool):
    for node in ast.iter_child_nodes(tree):
        if not for_types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if not lazy and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        yield node
        yield from _statements(node, lazy, for_types)


def folder_of(path: Path) -> str:
    """The room of a module: a folder below one of the four packages (a database of the tuner's is one of its own)."""
    parts = path.relative_to(ROOT).parts
    if parts[:3] == ("shaderloom", "tuner", "db"):
        return "/".join(parts[:3])
    return "/".join(parts[:2])


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize(("name", "path"), [pytest.param(*item, id=item[0]) for item in modules()])
def test_imports_run_one_way(name, path):
    imported = set(imports_of(name, path, lazy=True))
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


def test_folders_have_an_order():
    """No circle of imports between folders, those inside functions and those for type checkers included."""
    names = dict(modules())
    graph = networkx.DiGraph()
    for name, path in names.items():
        if name == "shaderloom":  # the public names, each loaded when it is first used
            continue
        for other in imports_of(name, path, lazy=True, for_types=True):
            if other in names and folder_of(names[other]) != folder_of(path):
                graph.add_edge(folder_of(path), folder_of(names[other]))
    assert [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1] == []


def test_folders_are_small_and_say_their_job():
    folders: dict[Path, list[Path]] = {}
    for _, path in modules():
        folders.setdefault(path.parent, []).append(path)
    large = {str(folder.relative_to(ROOT)) for folder, files in folders.items() if len(files) > 31}
    assert large <= {"compiler/ops/onnx"}  # a file for each family of the standard's operators
    silent = [folder for folder in folders if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))]
    assert silent == []


def test_no_module_imports_itself_through_others():
    names = dict(modules())
    graph = networkx.DiGraph()
    for name, path in names.items():
        found = {other for other in imports_of(name, path, lazy=False, for_types=True) if other in names}
        # ``from .package import module`` names both; a package's own file does not depend on its modules by that
        packages = {other for other in found if any(deeper.startswith(other + ".") for deeper in found)}
        graph.add_edges_from((name, other) for other in found - packages - {name})
    assert [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1] == []


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
