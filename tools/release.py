"""``./dev release``: build the source archive and the wheel, check both, and try the wheel in a clean environment."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tools.addresses import Addresses, map_links, read_addresses

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "dist"  #: emptied first


class ReleaseError(Exception):
    """Why no release can be built."""


def check_readiness(root: Path, addresses: Addresses, version: str) -> None:
    """Raise :class:`ReleaseError` with every reason why packages of this tree must not be uploaded."""
    reasons = [f"tool.shaderloom.{name} in pyproject.toml is not set" for name in addresses.missing]
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE):
        reasons.append(f"CHANGELOG.md has no section '## {version} (YYYY-MM-DD)'")
    if _git(root, "status", "--porcelain"):
        reasons.append("there are changes that are not committed")
    if reasons:
        hint = "./dev release --local builds and checks packages that are not for upload"
        raise ReleaseError("\n".join([*reasons, hint]))


def copy_sources(root: Path, target: Path, addresses: Addresses, version: str) -> None:
    """Copy the files that git tracks to ``target``; with a repository set, complete its README and its metadata."""
    for name in _git(root, "ls-files", "-z").split("\0"):
        if name and os.path.lexists(root / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)
    tag = f"v{version}"
    if addresses.repository:

        def absolute(path: str, is_picture: bool) -> str:
            return addresses.picture(path, tag) if is_picture else addresses.file(path, tag)

        readme = target / "README.md"
        readme.write_text(map_links(readme.read_text(encoding="utf-8"), absolute), encoding="utf-8")
    with (target / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(metadata(addresses, tag))


def metadata(addresses: Addresses, tag: str) -> str:
    """Return the tables of pyproject.toml that follow from the addresses; empty where none is set."""
    text = ""
    if addresses.repository:
        urls = {
            "Repository": addresses.repository,
            "Documentation": addresses.file("docs", tag),
            "Changelog": addresses.file("CHANGELOG.md", tag),
            "Issues": f"{addresses.repository}/issues",
        }
        text += "\n[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    if addresses.contact:
        text += f'\n[[project.maintainers]]\nname = "The Shaderloom authors"\nemail = "{addresses.contact}"\n'
    return text


def build(source: Path, output: Path) -> tuple[Path, Path]:
    """Build into ``output`` the source archive of ``source``, and of that the wheel; check what an index would show."""
    _run(sys.executable, "-m", "build", "--outdir", str(output), str(source))
    (archive,), (wheel,) = output.glob("*.tar.gz"), output.glob("*.whl")
    _run(sys.executable, "-m", "twine", "check", "--strict", str(archive), str(wheel))
    return archive, wheel


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel in a new environment in ``folder``, and use it there as a user would."""
    venv.create(folder, with_pip=True)
    binaries = folder / ("Scripts" if os.name == "nt" else "bin")
    _run(str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    _run(str(binaries / "shaderloom"), "--version", cwd=folder)
    _run(str(binaries / "python"), str(ROOT / "tools" / "release_trial.py"), cwd=folder)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def _run(*command: str, cwd: Path | None = None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if subprocess.run(command, cwd=cwd, env=environment).returncode:
        raise ReleaseError(f"failed: {' '.join(command)}")


def main() -> None:
    """Build and check the packages; exit with the reason where that is not possible."""
    parser = argparse.ArgumentParser(prog="./dev release", description=__doc__)
    parser.add_argument(
        "--local", action="store_true", help="not for upload: without the project's addresses, from a tree with changes"
    )
    arguments = parser.parse_args()
    try:
        from shaderloom.version import __version__

        addresses = read_addresses(ROOT)
        if not arguments.local:
            check_readiness(ROOT, addresses, __version__)
        shutil.rmtree(OUTPUT, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="shaderloom-release-") as scratch:
            source = Path(scratch) / "source"
            copy_sources(ROOT, source, addresses, __version__)
            archive, wheel = build(source, OUTPUT)
            try_wheel(wheel, Path(scratch) / "environment")
    except (ReleaseError, ValueError) as error:
        sys.exit(f"release: {error}")
    print(f"{archive}\n{wheel}")
    if arguments.local:
        print("not for upload")
    else:
        print(f"next: git tag -s v{__version__}; git push origin v{__version__}; twine upload {OUTPUT}/*")


if __name__ == "__main__":
    main()
