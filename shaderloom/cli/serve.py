"""``shaderloom serve``: bundles in a browser on this machine, and models over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from ..runtime.plan.errors import InputError
from .command import as_command
from .common import count_text
from .generation import FolderOptions
from .serving import ApiName, ServingOptions, serve_api
from .terminal import echo


@as_command
def command(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="BUNDLE...|FOLDER|MODEL",
            help="Shader bundles, folders or zips; with --api the folder of a decoder, or a model.",
        ),
    ],
    api: Annotated[
        ApiName | None, typer.Option("--api", help="Answer requests of programs instead of showing a page.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the default browser.")] = False,
    *,
    serving: ServingOptions,
    opening: FolderOptions,
) -> None:
    """Serve bundles on this machine with a page that runs them, or a model over HTTP.

    The page runs a bundle's sample and compares, times runs and kernels, shows the steps of programs and the shaders,
    accepts pictures for image models, and has the code of a page that uses the bundle. It is served on 127.0.0.1 and
    contacts no other host.

    [bold]--api openai[/bold] speaks what clients of OpenAI's expect: /v1/models, /v1/chat/completions and
    /v1/completions, streamed or whole. Requests are answered together, and join and leave between tokens.

    [bold]--api kserve[/bold] speaks version 2 of the KServe protocol: tensors in, tensors out, in JSON or bytes.
    Requests of equal shapes run together where the model's rows do not depend on each other.

    Both have /metrics in the form of Prometheus. Ctrl-C ends it; a second one does not wait for answers.

    [bold]Examples[/bold]

      shaderloom serve squeezenet.shaderbundle --port 8000

      shaderloom serve encoder.shaderbundle decoder.shaderbundle

      shaderloom serve smollm2 --api openai --slots 8 --queue 64

      shaderloom serve resnet50.onnx --api kserve --slots 32

      curl http://127.0.0.1:8000/v1/chat/completions -d
      '{"model": "smollm2", "messages": [{"role": "user", "content": "Hello"}]}'
    """
    if api is not None:
        if len(models) > 1 or open_browser:
            raise InputError("--api serves one model, without a page", hint="name one; leave --open out")
        serve_api(api, models[0], port, serving, opening)
    elif (serving, opening) != (ServingOptions(), FolderOptions()):
        raise InputError("bundles are served with --port and --open alone", hint="--api openai has the other options")
    else:
        _serve_page(models, port, open_browser)


def _serve_page(bundles: Sequence[Path], port: int, open_browser: bool) -> None:
    from ..runtime.bundle.files import is_bundle, open_files
    from ..runtime.bundle.reader import Bundle
    from ..serve.files import bundle_list, bundle_resources, page_resources, runner_resources
    from ..serve.site import Resource, Site

    resources: dict[str, Resource] = {**page_resources(), **runner_resources()}
    listed = []
    with ExitStack() as stack:
        for path in bundles:
            if path.is_file() and not is_bundle(path):
                raise InputError(
                    f"'{path}' is no bundle",
                    hint="--api kserve serves a model; shaderloom compile makes a bundle of it",
                )
        for bundle, folder in zip(bundles, _folders(path.absolute().name for path in bundles)):
            with Bundle(bundle) as opened:  # a visibly damaged bundle is reported here rather than on the page
                listed.append((bundle.absolute().name, f"bundles/{folder}/", opened.manifest))
            files = open_files(bundle)
            stack.callback(files.close)
            resources |= bundle_resources(files, f"/bundles/{folder}/")
        with Site({**resources, **bundle_list(listed)}, port) as site:
            name, verb = (bundles[0].name, "is") if len(bundles) == 1 else (count_text(len(bundles), "bundle"), "are")
            try:
                echo(f"{name} {verb} at {site.url} (Ctrl-C ends)")
                if open_browser:
                    typer.launch(site.url)
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
