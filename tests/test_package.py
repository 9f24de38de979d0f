"""The distribution: its packages, data files, metadata and entry point."""

import fnmatch
import importlib.metadata
import importlib.resources
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import onnx.defs
import pytest

import shaderloom
import shaderloom.compiler.ops
from shaderloom.compiler.ops.registry import registry

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "shaderloom": "shaderloom",
    "compiler": "shaderloom/compiler",
    "runtime": "shaderloom/runtime",
    "templates": "shaderloom/templates",
}
NOT_DISTRIBUTED = {"__pycache__", "node_modules", "package.json", "package-lock.json", "tsconfig.json", "biome.json"}


def source_files():
    """Every file of the package folders, as (path in the repository, path in a wheel)."""
    for folder, installed in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*")):
            relative = path.relative_to(ROOT / folder)
            linked = folder == "shaderloom" and relative.parts[0] in FOLDERS
            if path.is_file() and not linked and not NOT_DISTRIBUTED & set(relative.parts):
                yield path, f"{installed}/{relative.as_posix()}"


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory):
    """The member names of a wheel that is built from a copy of the sources, so that no old build folder can help."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", *FOLDERS):
        (copy / name).symlink_to(ROOT / name)
    wheels = tmp_path_factory.mktemp("wheels")
    build = "from setuptools import build_meta; import sys; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(wheels)], cwd=copy, check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_a_wheel_holds_every_source_file(wheel_names):
    expected = {installed for _, installed in source_files()}
    assert {"shaderloom/compiler/__init__.py", "shaderloom/runtime/plan/errors.py", "shaderloom/py.typed"} <= expected
    assert expected - wheel_names == set()


def test_a_wheel_holds_nothing_else(wheel_names):
    expected = {installed for _, installed in source_files()}
    extra = {name for name in wheel_names - expected if ".dist-info/" not in name}
    assert extra == set()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel_names)


def test_every_folder_with_modules_is_a_package():
    folders = {path.parent for path, _ in source_files() if path.suffix == ".py"}
    assert [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_templates_are_found_as_resources():
    templates = importlib.resources.files("shaderloom.templates")
    folders = [entry for entry in templates.iterdir() if entry.is_dir() and not entry.name.startswith("__")]
    assert {"gemm", "reduce", "functions"} <= {folder.name for folder in folders}
    files = [file for folder in folders for file in folder.iterdir()]
    assert all(file.name.endswith(".wgsl.j2") and file.read_text(encoding="utf-8").strip() for file in files)


def documents():
    """The pages of the repository."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")])


def test_prose_is_wrapped():
    """Lines of pages that people write, but for tables and code, have at most 120 columns."""
    long = []
    for document in documents():
        text = document.read_text(encoding="utf-8")
        prose = re.sub(r"^```.*?^```$|^    .*?$", "", text, flags=re.MULTILINE | re.DOTALL)
        if "; do not edit." not in text:
            long += [(document.name, line) for line in prose.splitlines() if len(line) > 120 and line[0] != "|"]
    assert long == []


def test_documents_name_files_that_exist():
    """Files of the project in code quotes, and the targets of links."""
    folders = (*FOLDERS, "tests", "docs", "bench", "examples", "tools")
    paths = {path for folder in folders for path in (ROOT / folder, *(ROOT / folder).rglob("*"))}
    paths.update(path for path in ROOT.iterdir() if path.is_file())
    known = {f"/{path.relative_to(ROOT).as_posix()}" for path in paths}
    named = re.compile(r"`((?:[\w*.-]+/)*[\w*-]+\.(?:py|j2|toml|css)|(?:[\w-]+/)+)`")
    missing = []
    for document in documents():
        text = document.read_text(encoding="utf-8")
        for name in named.findall(text):
            source = name.removeprefix("shaderloom/") or name  # as it is named in an installed package
            if not name.startswith("build/") and not fnmatch.filter(known, f"*/{source.rstrip('/')}"):
                missing.append((document.name, name))
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            if not (document.parent / target).exists():
                missing.append((document.name, target))
    assert missing == []


def test_the_documentation_has_every_page():
    """A page that docs/conf.py does not name is in no menu, which ./dev docs refuses."""
    navigation = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    pages = [path for folder in ("guide", "benchmarks") for path in (ROOT / "docs" / folder).glob("*.md")]
    assert len(pages) > 10
    named = re.compile(r'"(?:docs/guide/)?([\w-]+)"')
    assert {path.stem for path in pages} - set(named.findall(navigation)) == set()


def test_the_readme_counts_operators():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    standard = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    own = [definition for definition in registry.all() if definition.domain == "" and definition.name in standard]
    contributed = [definition for definition in registry.all() if definition.domain == "com.microsoft"]
    assert f"{len(own)} of ai.onnx" in text and f"{len(contributed)} of `com.microsoft`" in text
    learned = [definition for definition in registry.all() if definition.domain == "ai.onnx.ml"]
    assert f"{len(learned)} of `ai.onnx.ml`" in text


def test_metadata_is_complete():
    metadata = importlib.metadata.metadata("shaderloom")
    assert metadata["Version"] == shaderloom.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    for field in ("Summary", "Author", "Keywords", "Classifier", "Description-Content-Type", "Provides-Extra"):
        assert metadata.get_all(field), field
    assert metadata["Description"] or metadata.get_payload()


def test_the_command_is_an_entry_point_that_loads():
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="shaderloom")
    assert callable(command.load())


def test_the_pictures_of_the_architecture_are_current():
    from tools.architecture import IMAGES, draw_folders, draw_run, folder_graph

    graph = folder_graph()
    assert (IMAGES / "folders.svg").read_text(encoding="utf-8") == draw_folders(graph), "python -m tools.architecture"
    assert (IMAGES / "run.svg").read_text(encoding="utf-8") == draw_run(graph), "python -m tools.architecture"
