"""The version of the compiler changes whenever anything does that it compiles with."""

import importlib.metadata
import os
import sys

import pytest

from shaderloom.cache import version


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of sources and a template, with metadata beside it."""
    folder = tmp_path / "versioned_sources"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "Versioned_Sources-1.2.dist-info").mkdir()
    for name in ("__init__.py", "inner/__init__.py", "inner/code.py", "inner/text.wgsl.j2"):
        (folder / name).write_text(f"# {name}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(version, "_SOURCES", ("versioned_sources",))
    monkeypatch.setattr(version, "_DEPENDENCIES", ("versioned_sources",))
    yield folder
    sys.modules.pop("versioned_sources", None)


def digest() -> str:
    return version.compiler_version.__wrapped__()


def test_any_change_of_a_source_changes_it(package):
    seen = {digest()}
    code = package / "inner" / "code.py"
    state = code.stat()
    code.write_text("# inner/Code.py\n")  # as long as before
    os.utime(code, ns=(state.st_atime_ns, state.st_mtime_ns))
    seen.add(digest())
    (package / "inner" / "text.wgsl.j2").write_text("fn f() {}")
    seen.add(digest())
    code.rename(package / "inner" / "other.py")
    seen.add(digest())
    (package / "inner" / "new.py").write_text("")
    seen.add(digest())
    assert len(seen) == 5


def test_what_is_no_source_does_not_change_it(package):
    before = digest()
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "code.py").write_text("1")
    (package / "notes.txt").write_text("1")
    assert digest() == before


def test_a_new_version_of_a_dependency_changes_it(package):
    before = digest()
    metadata = package.parent / "Versioned_Sources-1.2.dist-info"
    metadata.rename(package.parent / "Versioned_Sources-1.3.dist-info")
    assert version.installed_version("versioned_sources") == "1.3"
    assert digest() != before


def test_versions_are_those_of_the_metadata():
    for package in version._DEPENDENCIES:
        assert version.installed_version(package) == importlib.metadata.version(package)


def test_without_metadata_beside_it_importlib_decides(package):
    (package.parent / "Versioned_Sources-1.2.dist-info").rmdir()
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        version.installed_version("versioned_sources")
