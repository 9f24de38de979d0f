"""The page, built with esbuild, and the bundle beside it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shaderloom.runtime.bundle.files import open_files
from shaderloom.serve.files import bundle_resources, folder_resources
from shaderloom.serve.site import Site

ROOT = Path(__file__).resolve().parents[2]
#: What ./dev web-check and ./dev chat-demo --web install
TOOLS = ROOT / "build" / "node" / "node_modules"


def build_page(folder: Path) -> Path:
    """Build the page in ``folder``, its packages in it.  Raises RuntimeError without Node.js and the packages."""
    node = shutil.which("node")
    if node is None or not (TOOLS / "@huggingface").is_dir():
        raise RuntimeError("the page is built with Node.js and npm packages: ./dev chat-demo --web installs them")
    done = subprocess.run(
        [node, ROOT / "examples" / "web_chat" / "build.mjs", ROOT, folder], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"the page cannot be built: {done.stderr.strip()}")
    return folder


@contextmanager
def serve(page: Path, bundle: Path, port: int = 0) -> Iterator[Site]:
    """The page at the site's root, the bundle at ``/chat.shaderbundle/``."""
    files = open_files(bundle)
    try:
        with Site({**folder_resources(page), **bundle_resources(files, "/chat.shaderbundle/")}, port) as site:
            yield site
    finally:
        files.close()
