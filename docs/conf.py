"""Sphinx: the pages of the repository, and the reference of the API from the docstrings.  ``./dev docs`` builds them.

The root of the checkout is the source folder, so that links between pages are those that a forge follows.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import shaderloom  # noqa: E402
from tools.addresses import read_addresses  # noqa: E402
from tools.cli_reference import cli_reference  # noqa: E402

project = "Shaderloom"
author = "The Shaderloom authors"
version = release = shaderloom.__version__

root_doc = "README"
include_patterns = ["*.md", "docs/**", "bench/README.md"]
exclude_patterns = [".*", "build", "dist", *"shaderloom compiler runtime templates tests examples tools".split()]
extensions = ["myst_parser", "sphinx.ext.autodoc"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
myst_heading_anchors = 3
highlight_language = "text"
nitpicky = True

html_theme = "furo"
html_title = f"Shaderloom {version}"
html_copy_source = False
html_show_sphinx = False
_repository = read_addresses(ROOT).repository
html_theme_options = {"source_repository": _repository, "source_branch": f"v{version}"} if _repository else {}

#: Pages beside the start page, by heading; of the folder of contributors all that are there
NAVIGATION = {
    "Guide": [
        *("docs/guide/inspect", "docs/guide/tensors", "docs/guide/bundles", "docs/guide/web"),
        *(
            "docs/guide/onnxruntime-api",
            "docs/guide/pytorch",
            "docs/guide/shapes",
            "docs/guide/batching",
            "docs/scale",
            "docs/guide/precision",
            "docs/guide/logits",
            "docs/guide/generation",
            "docs/guide/serving",
            "docs/guide/tuning",
            "docs/guide/logging",
            "docs/guide/production",
        ),
        *("docs/guide/programs", "docs/guide/pytorch-models", "docs/guide/conformance"),
    ],
    "Reference": [
        f"docs/reference/{name}" for name in ("sessions", "tensors", "devices", "operators", "errors", "cli")
    ],
    "Benchmarks": [f"docs/benchmarks/{name}" for name in ("models", "sessions", "gpus")],
    "Development": [
        "CONTRIBUTING",
        "docs/architecture",
        *sorted(f"docs/development/{path.stem}" for path in (ROOT / "docs" / "development").glob("*.md")),
        *("docs/performance", "bench/README", "SECURITY", "CHANGELOG"),
    ],
}


def complete_page(app: Any, name: str, source: list[str]) -> None:
    """Append the navigation to the start page, which is the repository's README, and the commands to their page."""
    if name == "docs/reference/cli":
        source[0] += cli_reference()
    if name == root_doc:
        for heading, pages in NAVIGATION.items():
            source[0] += "\n".join(("", "```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```", ""))


def resolve_type(app: Any, environment: Any, node: Any, content: Any) -> Any:
    """Link a type of a signature to the public class of its last name; leave other types as text.

    References in docstrings have literal content and stay errors where nothing has their name.
    """
    if node.get("refdomain") != "py" or isinstance(content, nodes.literal):
        return None
    name = node["reftarget"].rpartition(".")[2]
    if name in shaderloom.__all__:
        domain = environment.get_domain("py")
        return domain.resolve_xref(environment, node["refdoc"], app.builder, "obj", f"shaderloom.{name}", node, content)
    return content


def copy_start_page(app: Any, error: Exception | None) -> None:
    """Give the start page the name that servers look for."""
    if error is None and app.builder.name == "html":
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Any) -> None:
    """Connect the functions above to Sphinx."""
    app.connect("source-read", complete_page)
    app.connect("missing-reference", resolve_type)
    app.connect("build-finished", copy_start_page)
