"""Packages for upload: the project's addresses, links that begin with them, and what must hold before.

Covers: tools/addresses.py, tools/release.py.
"""

import email
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import release
from tools.addresses import Addresses, map_links, read_addresses

ROOT = Path(__file__).resolve().parents[1]
FORGE = Addresses("https://forge.example/people/shaderloom", "security@forge.example")


def in_git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e@forge.example"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def small_project(folder):
    """A tree that a release could be built of, committed."""
    (folder / "pyproject.toml").write_text('[project]\nname = "p"\n[tool.shaderloom]\nrepository = ""\ncontact = ""\n')
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2026-01-31)\n")
    (folder / "README.md").write_text("![p](docs/p.png) [guide](docs/guide.md#use) [a](https://a.example) [b](#b)\n")
    (folder / "linked").symlink_to("elsewhere")
    (folder / ".gitignore").write_text("dist\n")
    in_git(folder, "init", "-q")
    in_git(folder, "add", "-A")
    in_git(folder, "commit", "-q", "-m", "first")
    return folder


def test_links_outside_of_code_are_mapped():
    text = (
        "[a](b.md) ![c](d.png) `[e](f.md)` [![g](h.png)](i.md) [j](https://k)\n```\n[n](o.md)\n```\n[p](q.md#r) [l](#m)"
    )

    def target(path, is_picture):
        return None if path == "b.md" else f"{'raw' if is_picture else 'page'}/{path}"

    assert map_links(text, target) == (
        "a ![c](raw/d.png) `[e](f.md)` [![g](raw/h.png)](page/i.md) [j](https://k)\n"
        "```\n[n](o.md)\n```\n[p](page/q.md#r) [l](#m)"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("repository", "http://forge.example/p"), ("repository", "https://forge.example/p/"), ("contact", "nobody")],
)
def test_addresses_must_be_well_formed(tmp_path, name, value):
    values = {"repository": "", "contact": "", name: value}
    lines = [f'{key} = "{text}"' for key, text in values.items()]
    (tmp_path / "pyproject.toml").write_text("\n".join(["[tool.shaderloom]", *lines]))
    with pytest.raises(ValueError, match=name):
        read_addresses(tmp_path)


def test_no_upload_without_addresses_a_date_and_a_commit(tmp_path):
    project = small_project(tmp_path)
    release.check_readiness(project, FORGE, "1.2.0")
    for addresses, version, reason in (
        (Addresses("", FORGE.contact), "1.2.0", "repository"),
        (Addresses(FORGE.repository, ""), "1.2.0", "contact"),
        (FORGE, "1.3.0", "## 1.3.0"),
    ):
        with pytest.raises(release.ReleaseError, match=f"{reason}.*\n.*--local"):
            release.check_readiness(project, addresses, version)
    (project / "README.md").write_text("changed")
    with pytest.raises(release.ReleaseError, match="not committed"):
        release.check_readiness(project, FORGE, "1.2.0")


def test_a_copy_has_tracked_files_and_absolute_links(tmp_path):
    project = small_project(tmp_path)
    (project / "dist").mkdir()
    (project / "dist" / "old.whl").write_text("")
    copy = tmp_path / "copy"
    release.copy_sources(project, copy, FORGE, "1.2.0")
    assert not (copy / "dist").exists()
    assert (copy / "linked").is_symlink()
    assert (copy / "README.md").read_text() == (
        f"![p]({FORGE.repository}/raw/v1.2.0/docs/p.png) [guide]({FORGE.repository}/blob/v1.2.0/docs/guide.md#use) "
        "[a](https://a.example) [b](#b)\n"
    )
    release.copy_sources(project, tmp_path / "plain", Addresses("", ""), "1.2.0")
    for name in ("README.md", "pyproject.toml"):
        assert (tmp_path / "plain" / name).read_bytes() == (project / name).read_bytes()


def test_metadata_of_a_package_for_upload(tmp_path):
    """The real project with addresses: what an index would show of its wheel."""
    release.copy_sources(ROOT, tmp_path / "source", FORGE, "1.2.0")
    program = "from setuptools import build_meta; import sys; build_meta.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", program, str(tmp_path)]
    subprocess.run(command, cwd=tmp_path / "source", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    assert f"Repository, {FORGE.repository}" in metadata.get_all("Project-URL")
    assert FORGE.contact in metadata["Maintainer-email"]
    description = metadata.get_payload()
    assert f"]({FORGE.repository}/raw/v1.2.0/docs/images/ocr.png)" in description
    assert map_links(description, lambda path, _: pytest.fail(f"a relative link: {path}")) == description
