"""What the page consists of: its scripts, the runner, the bundles, and the default picture."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from PIL import Image

from examples.ocr.images import draw_sample
from shaderloom.runtime.bundle.files import open_files
from shaderloom.serve.files import bundle_resources, folder_resources, runner_resources
from shaderloom.serve.site import Resource, Site

PAGE = Path(__file__).parent / "page"


@contextmanager
def serve(bundles: Mapping[str, Path], port: int = 0) -> Iterator[Site]:
    """The page at the site's root, each bundle at ``/NAME/``, the default picture at ``/sample.png``."""
    resources = {**folder_resources(PAGE), **runner_resources(), "/sample.png": Resource("image/png", default_picture)}
    with ExitStack() as stack:
        for name, path in bundles.items():
            files = open_files(path)
            stack.callback(files.close)
            resources |= bundle_resources(files, f"/{name}/")
        yield stack.enter_context(Site(resources, port))


def default_picture() -> bytes:
    """The picture that ``./dev demo`` reads, as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(draw_sample()).save(file, "PNG")
    return file.getvalue()
