"""Options of the commands that generate text, and answers as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import CacheOption, DeviceOption, OptionGroup, TrustOption
from .terminal import echo, progress

if TYPE_CHECKING:
    from ..generate.answer import Generation
    from ..generate.generator import Generator

FolderArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="A folder of onnxruntime-genai, optimum, transformers.js or shaderloom convert."
    ),
]

FileOption = Annotated[
    str | None, typer.Option("--file", metavar="NAME.onnx", help="The model in a folder, where there are several.")
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option("--max-length", min=1, help="The most tokens of prompt and answer. Default: 4096, or fewer."),
]


@dataclass(frozen=True, kw_only=True)
class FolderOptions(OptionGroup):
    """How the decoder of a folder is opened."""

    file: FileOption = None
    max_length: MaxLengthOption = None
    device: DeviceOption = None
    cache: CacheOption = True
    trust: TrustOption = False


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(OptionGroup):
    """How tokens are chosen, and where an answer ends."""

    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", "-n", min=1, help="The most tokens of an answer.")
    ] = None
    temperature: Annotated[
        float, typer.Option("--temperature", min=0, help="0: the most probable token; else how free the draw is.")
    ] = 0.0
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Draw among the most probable tokens; 0: all.")] = 0
    top_p: Annotated[
        float, typer.Option("--top-p", help="Draw among the fewest tokens with this share of the probability.")
    ] = 1.0
    min_p: Annotated[
        float, typer.Option("--min-p", help="Draw tokens of this part of the greatest probability, or more.")
    ] = 0.0
    repetition_penalty: Annotated[
        float, typer.Option("--repetition-penalty", help="Divides the logits of tokens that the text has.")
    ] = 1.0
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of the draws. Default: another each time.")
    ] = None
    stop: Annotated[
        list[str] | None, typer.Option("--stop", metavar="TEXT", help="Text that ends an answer; repeatable.")
    ] = None
    json_schema: Annotated[
        Path | None, typer.Option("--json-schema", metavar="FILE", help="The answer is JSON of the schema in a file.")
    ] = None
    regex: Annotated[
        str | None, typer.Option("--regex", metavar="REGEX", help="The answer matches a regular expression.")
    ] = None
    grammar: Annotated[
        Path | None, typer.Option("--grammar", metavar="FILE", help="The answer follows the Lark grammar in a file.")
    ] = None
    prompt_lookup: Annotated[
        int,
        typer.Option(
            "--prompt-lookup", min=0, max=15, help="Verify up to so many tokens of the text in a run. Default: none."
        ),
    ] = 0

    @property
    def chosen(self) -> dict[str, Any]:
        """Return the arguments of :meth:`Generator.generate`."""
        names = "max_new_tokens temperature top_k top_p min_p repetition_penalty seed".split()
        chosen = {name: getattr(self, name) for name in names}
        chosen |= {"regex": self.regex, "json_schema": _read(self.json_schema), "grammar": _read(self.grammar)}
        return {**chosen, "stop": self.stop or (), "prompt_lookup_num_tokens": self.prompt_lookup}


def _read(path: Path | None) -> str | None:
    """Return the text of a file.  Raises :class:`ModelError` if it has none."""
    from ..generate.config_files import as_text, read_bytes

    return None if path is None else as_text(path.name, read_bytes(path))


def open_generator(folder: Path, options: FolderOptions, *, quiet: bool = False) -> Generator:
    """Open a generator; its compilation is shown on a terminal."""
    from ..generate.generator import Generator

    with progress(quiet=quiet) as report:
        return Generator(
            folder,
            device=options.device,
            max_length=options.max_length,
            file=options.file,
            cache=options.cache,
            trust=options.trust,
            progress=report,
        )


def print_pieces(pieces: Iterable[str], show: Callable[..., None] = echo) -> None:
    """Print pieces of a text as they come, and end the line."""
    for piece in pieces:
        show(piece, newline=False)
    show()


def summary(generation: Generation) -> str:
    """Return what an answer took, on one line."""
    facts = generation.statistics
    speed = f", {facts.tokens_per_second:.1f} tokens/s" if facts.tokens_per_second else ""
    drafts = f", {facts.accepted_tokens} of {facts.drafted_tokens} drafted" if facts.drafted_tokens else ""
    reused = f" ({facts.reused_tokens} of them before)" if facts.reused_tokens else ""
    return (
        f"{facts.prompt_tokens} tokens{reused}, first token after {facts.first_token_seconds:.2f} s, "
        f"{facts.new_tokens} new{speed}{drafts}"
    )
