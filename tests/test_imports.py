"""Imports run one way, and a program loads no more than it uses."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import networkx
import pytest

from .support.patience import PATIENCE
from .support.sources import PRODUCT, Source, sources

HEAVY = {"onnx", "jinja2", "networkx", "google", "onnxruntime"}


@cache
def modules() -> dict[str, Source]:
    """Every module by its dotted name."""
    named = {}
    for source in sources(*PRODUCT):
        parts = source.path.with_suffix("").parts
        parts = parts if parts[0] == "shaderloom" else ("shaderloom", *parts)
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = source
    return named


def imports_of(name: str, source: Source, *, for_types: bool) -> set[str]:
    """Dotted names that a module imports, inside functions too; with ``for_types`` those for type checkers too."""
    package = (name if source.path.name == "__init__.py" else name.rpartition(".")[0]).split(".")
    unseen = set() if for_types else _for_type_checkers(source)
    imported = {alias.name for node in source.nodes(ast.Import) if node not in unseen for alias in node.names}
    for node in source.nodes(ast.ImportFrom):
        if node not in unseen:
            base = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join((*base, *([node.module] if node.module else [])))
            imported |= {target, *(f"{target}.{alias.name}" for alias in node.names)}
    return imported


def _for_type_checkers(source: Source) -> set[ast.AST]:
    blocks = [node for node in source.nodes(ast.If) if "TYPE_CHECKING" in ast.unparse(node.test)]
    return {inner for block in blocks for inner in ast.walk(block)}


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def test_imports_run_one_way():
    """The runtime imports neither the compiler nor what is heavy, the compiler nothing of the runtime but plans."""
    wrong = []
    for name, source in modules().items():
        imported = imports_of(name, source, for_types=False)
        inner = {other for other in imported if is_within(other, "shaderloom")}
        if is_within(name, "shaderloom.runtime"):
            refused = {other for other in imported if other.split(".")[0] in HEAVY}
            refused |= {other for other in inner if not is_within(other, "shaderloom.runtime")}
        elif is_within(name, "shaderloom.compiler"):
            allowed = ("shaderloom.compiler", "shaderloom.runtime.plan", "shaderloom.templates")
            refused = {other for other in imported if other.split(".")[0] == "wgpu"}
            refused |= {other for other in inner if not any(is_within(other, package) for package in allowed)}
        else:
            continue
        wrong += [f"{name}: {other}" for other in sorted(refused)]
    assert wrong == []


def parted(source: Path, target: Path) -> tuple[str, str, str]:
    """Return the innermost folder that has both modules, and its two entries in which they are."""
    left, right = (path.with_suffix("").parts for path in (source, target))
    depth = next(depth for depth, entries in enumerate(zip(left, right)) if entries[0] != entries[1])
    return "/".join(left[:depth]), left[depth], right[depth]


def test_what_a_folder_has_is_in_an_order():
    """No circle of imports between the modules and folders that any folder has, so none between modules at all.

    Imports inside functions and those for type checkers count.
    """
    names = modules()
    graphs: dict[str, networkx.DiGraph] = {}
    for name, module in names.items():
        if name == "shaderloom":  # the public names, each loaded when it is first used
            continue
        found = imports_of(name, module, for_types=True) & names.keys()
        # ``from .package import module`` names both; a package's own file does not depend on its modules by that
        packages = {other for other in found if any(is_within(deeper, other) for deeper in found - {other})}
        for other in found - packages - {name}:
            folder, source, target = parted(module.path, names[other].path)
            graphs.setdefault(folder, networkx.DiGraph()).add_edge(source, target)
    circles = {
        folder: [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1]
        for folder, graph in graphs.items()
    }
    assert {folder: groups for folder, groups in circles.items() if groups} == {}


def test_folders_are_small_and_say_their_job():
    folders: dict[Path, list[Source]] = {}
    for module in modules().values():
        folders.setdefault(module.path.parent, []).append(module)
    large = {str(folder) for folder, files in folders.items() if len(files) > 31}
    assert large <= {"compiler/ops/onnx"}  # a file for each family of the standard's operators
    packages = [module for module in modules().values() if module.path.name == "__init__.py"]
    described = {module.path.parent for module in packages if ast.get_docstring(module.tree)}
    assert folders.keys() - described == set()


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
