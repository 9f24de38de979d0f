"""Servers of models: options, and what runs until it is interrupted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..runtime.plan.errors import InputError, UnsupportedError
from .common import parse_bytes
from .generation import FolderOptions, open_generator
from .options import OptionGroup
from .terminal import echo

if TYPE_CHECKING:
    from ..server.application import Api
    from ..server.limits import ServerLimits


class ApiName(StrEnum):
    """What clients of a server speak."""

    openai = "openai"
    kserve = "kserve"


@dataclass(frozen=True, kw_only=True)
class ServingOptions(OptionGroup):
    """Who may ask a server, and how much."""

    host: Annotated[str, typer.Option("--host", help="Address to listen on. Beyond this machine set a key, too.")] = (
        "127.0.0.1"
    )
    name: Annotated[
        str | None, typer.Option("--name", help="What clients call the model. Default: the name of its folder or file.")
    ] = None
    key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="SHADERLOOM_API_KEY", show_envvar=True, help="Key that clients must send."),
    ] = None
    slots: Annotated[
        int, typer.Option("--slots", min=1, max=256, help="Requests that run together; for texts each with a cache.")
    ] = 8
    queue: Annotated[
        int, typer.Option("--queue", min=0, max=100_000, help="Requests that may wait; others are answered with 429.")
    ] = 64
    body: Annotated[
        str | None,
        typer.Option(
            "--max-body", metavar="SIZE", help="The largest body of a request. Default: 4MiB, of tensors 64MiB."
        ),
    ] = None
    seconds: Annotated[
        float, typer.Option("--timeout", min=0.1, max=86_400, help="Seconds until an answer must be complete.")
    ] = 600.0

    def limits(self, body: str) -> ServerLimits:
        """Return the limits of the application; ``body`` is the largest body where none is stated."""
        from ..server.limits import ServerLimits

        size = parse_bytes(self.body or body, "--max-body")
        return ServerLimits(body=size, bodies=16 * size, request_seconds=self.seconds, key=self.key)


def serve_api(api: ApiName, path: Path, port: int, options: ServingOptions, opening: FolderOptions) -> None:
    """Serve a model until an interrupt.  Raises :class:`UnsupportedError` where packages are missing."""
    try:
        serve = {ApiName.openai: _serve_openai, ApiName.kserve: _serve_kserve}[api]
        serve(path, port, options, opening)
    except ImportError as error:
        raise UnsupportedError(
            f"serving needs the package {error.name}, which is not installed", hint="pip install 'shaderloom[server]'"
        ) from error


def _serve_openai(path: Path, port: int, options: ServingOptions, opening: FolderOptions) -> None:
    from ..server.openai.answers import TextModel
    from ..server.openai.routes import OpenAiApi

    limits, name = options.limits("4MiB"), options.name or path.absolute().name
    model = TextModel(lambda: open_generator(path, opening), slots=options.slots, queue=options.queue)
    _run(OpenAiApi(model, name, limits), limits, options, port, f"{name} is at", "/v1")


def _serve_kserve(path: Path, port: int, options: ServingOptions, opening: FolderOptions) -> None:
    from ..server.kserve.routes import KServeApi
    from ..server.kserve.served_session import ServedSession

    if opening.file is not None or opening.max_length is not None or opening.trust:
        raise InputError("--file, --max-length and --trust are of models that generate text", hint="leave them out")
    limits, name = options.limits("64MiB"), options.name or path.absolute().stem
    model = ServedSession(path, device=opening.device, cache=opening.cache, rows=options.slots, queue=options.queue)
    together = f"up to {options.slots} rows run together" if model.is_joined else "requests run in turn"
    _run(KServeApi(model, name, limits), limits, options, port, f"{name} ({together}) is at", "/v2")


def _run(api: Api, limits: ServerLimits, options: ServingOptions, port: int, title: str, path: str) -> None:
    from ..server.running import ApiServer

    with ApiServer(api, limits, options.host, port) as server:
        if not server.is_loopback and limits.key is None:
            echo("warning: everybody who reaches this address may ask [--api-key sets a key]", err=True)
        try:
            echo(f"{title} {server.url}{path} (Ctrl-C ends)")
            server.wait()
        except KeyboardInterrupt:
            echo()
