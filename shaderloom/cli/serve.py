"""``shaderloom serve``: run bundles in a browser on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from .command import as_command
from .common import count_text
from .terminal import echo


@as_command
def command(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE...", help="Shader bundles: folders or zips.")],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 8000,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the default browser.")] = False,
) -> None:
    """Serve bundles on this machine with a page that runs them.

    The page runs a bundle's sample and compares, times runs and kernels, shows the steps of programs and the shaders,
    accepts pictures for image models, and has the code of a page that uses the bundle. It is served on 127.0.0.1 and
    contacts no other host. Ctrl-C ends it.

    [bold]Examples[/bold]

      shaderloom serve squeezenet.shaderbundle --port 8000

      shaderloom serve encoder.shaderbundle decoder.shaderbundle
    """
    from ..runtime.bundle.files import open_files
    from ..runtime.bundle.reader import Bundle
    from ..serve.files import bundle_list, bundle_resources, page_resources, runner_resources
    from ..serve.site import Resource, Site

    resources: dict[str, Resource] = {**page_resources(), **runner_resources()}
    listed = []
    with ExitStack() as stack:
        for bundle, folder in zip(bundles, _folders(path.absolute().name for path in bundles)):
            with Bundle(bundle) as opened:  # a visibly damaged bundle is reported here rather than on the page
                listed.append((bundle.absolute().name, f"bundles/{folder}/", opened.manifest))
            files = open_files(bundle)
            stack.callback(files.close)
            resources |= bundle_resources(files, f"/bundles/{folder}/")
        with Site({**resources, **bundle_list(listed)}, port) as site:
            name, verb = (bundles[0].name, "is") if len(bundles) == 1 else (count_text(len(bundles), "bundle"), "are")
            echo(f"{name} {verb} at {site.url} (Ctrl-C ends)")
            if open_browser:
                typer.launch(site.url)
            try:
                site.wait()
            except KeyboardInterrupt:
                echo()


def _folders(names: Iterable[str]) -> list[str]:
    """Return a plain and unique folder of the site for each name."""
    folders: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "bundle"
        folder, number = plain, 2
        while folder in folders:
            folder, number = f"{plain}-{number}", number + 1
        folders.append(folder)
    return folders
