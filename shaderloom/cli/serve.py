"""``shaderloom serve``: run a bundle in a browser on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from .command import as_command
from .options import BundleArgument
from .terminal import echo


@as_command
def command(
    bundle: BundleArgument,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 8000,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the default browser.")] = False,
) -> None:
    """Serve a bundle on this machine with a page that runs it.

    The page runs the bundle's sample and compares, times runs and kernels, shows the shaders, and accepts pictures for
    image models. It is served on 127.0.0.1 and contacts no other host. Ctrl-C ends it.

    [bold]Example[/bold]

      shaderloom serve squeezenet.shaderbundle --port 8000
    """
    from ..runtime.bundle.files import open_files
    from ..runtime.bundle.reader import Bundle
    from ..serve.files import bundle_resources, page_resources, runner_resources, text_resource
    from ..serve.site import Site

    Bundle(bundle).close()  # a visibly damaged bundle is reported here rather than on the page
    files = open_files(bundle)
    resources = {
        **page_resources(),
        **runner_resources(),
        **text_resource("name.txt", bundle.absolute().name),
        **bundle_resources(files, "/bundle/"),
    }
    try:
        with Site(resources, port) as site:
            echo(f"{bundle.name} is at {site.url} (Ctrl-C ends)")
            if open_browser:
                typer.launch(site.url)
            try:
                site.wait()
            except KeyboardInterrupt:
                echo()
    finally:
        files.close()
