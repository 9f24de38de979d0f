"""Imports run one way, and a program loads no more than it uses."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = {
    "shaderloom": ROOT / "shaderloom",
    "shaderloom.compiler": ROOT / "compiler",
    "shaderloom.runtime": ROOT / "runtime",
    "shaderloom.templates": ROOT / "templates",
}

#: Modules of the runtime that hold plain data: the only ones that the compiler may import
PLAIN_DATA = {"errors", "dtypes", "plan", "size_range", "device_profile", "tensor_file"}

HEAVY = {"onnx", "jinja2", "networkx", "google", "onnxruntime"}

#: Layers of the compiler, lowest first; a module imports from its own layer or a lower one
LAYERS = (
    ("index", "dimensions", "expr", "layout", "collection", "winograd", "choices"),
    ("ir", "sources", "evaluate", "cache", "coordinates", "lanes", "attention_tiles"),
    ("ops", "builder"),
    ("rewrite", "interpret"),
    ("frontend", "unrolling", "step_advice", "specialise", "program_nodes", "decisions", "staging"),
    ("fusion", "attention", "narrow", "buffers"),
    # kernels ask codegen for the type of an operand, codegen renders their specs
    ("kernels", "codegen", "tuning", "tuning_winograd", "tuning_depthwise"),
    ("passes",),  # the layout pass asks the kernels which layouts they can read
    ("planner", "record", "alternatives"),
    ("driver", "host", "extremes", "reach", "half_storage"),
)


def modules():
    """(dotted name, path) of every module."""
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            yield ".".join((package, *parts)), path


def imports_of(name: str, path: Path, *, lazy: bool):
    """Dotted names that a module imports, with ``lazy`` also inside functions; those for type checkers do not count."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in _statements(tree, lazy):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            target = ".".join((*base, *([node.module] if node.module else [])))
            yield target
            yield from (f"{target}.{alias.name}" for alias in node.names)


def _statements(tree: ast.AST, lazy: bool):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if not lazy and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        yield node
        yield from _statements(node, lazy)


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
            if is_within(other, "shaderloom.runtime") and other != "shaderloom.runtime":
                assert other.split(".")[2] in PLAIN_DATA, other
        allowed = ("shaderloom.compiler", "shaderloom.runtime", "shaderloom.templates")
        inner = {other for other in imported if is_within(other, "shaderloom")}
        assert all(any(is_within(other, package) for package in allowed) for other in inner), inner
        assert "wgpu" not in {other.split(".")[0] for other in imported}


def test_layers_of_the_compiler():
    level = {module: index for index, layer in enumerate(LAYERS) for module in layer}
    wrong = []
    for name, path in modules():
        parts = name.split(".")
        if not is_within(name, "shaderloom.compiler") or len(parts) < 3:
            continue
        assert parts[2] in level, f"{parts[2]} has no place in the order of the compiler's modules"
        for other in imports_of(name, path, lazy=False):
            target = other.split(".")
            if is_within(other, "shaderloom.compiler") and len(target) > 2 and target[2] in level:
                if level[target[2]] > level[parts[2]]:
                    wrong.append(f"{name} imports {other}")
    assert wrong == []


def test_no_module_imports_itself_through_others():
    names = dict(modules())
    graph = networkx.DiGraph()
    for name, path in names.items():
        found = {other for other in imports_of(name, path, lazy=False) if other in names}
        # ``from .package import module`` names both; a package's own file does not depend on its modules by that
        packages = {other for other in found if any(deeper.startswith(other + ".") for deeper in found)}
        graph.add_edges_from((name, other) for other in found - packages - {name})
    assert [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1] == []


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules, sep='\\n')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
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
        ("import shaderloom.runtime.executor", {"onnx", "jinja2", "networkx", "shaderloom.compiler"}),
        ("import shaderloom; shaderloom.load_bundle", {"onnx", "jinja2", "networkx", "shaderloom.compiler"}),
        ("import shaderloom.cli", {"numpy", "wgpu", "onnx", "jinja2", "networkx", "shaderloom.session"}),
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
