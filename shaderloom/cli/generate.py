"""``shaderloom generate``: continue a text, or answer a message."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from .command import as_command
from .common import print_json
from .generation import FolderArgument, FolderOptions, SamplingOptions, open_generator, print_pieces, summary
from .options import JsonOption
from .terminal import echo


@as_command
def command(
    folder: FolderArgument,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The text.")],
    *,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is, instead of answering it as a message.")
    ] = False,
    sampling: SamplingOptions,
    opening: FolderOptions,
    as_json: JsonOption = False,
) -> None:
    """Answer a message with the decoder of a folder, word by word.

    A model without a template of chats continues the text.

    [bold]Examples[/bold]

      shaderloom generate smollm2 "What is the capital of France?"

      shaderloom generate qwen2.5 "Write a haiku." --temperature 0.8 --top-k 40 --seed 1

      shaderloom generate gpt2 "Once upon a time" --raw -n 50
    """
    with open_generator(folder, opening, quiet=as_json) as generator:
        is_chat = generator.has_template and not raw
        generation = generator.generate([{"role": "user", "content": prompt}] if is_chat else prompt, **sampling.chosen)
        if as_json:
            text = "".join(generation)
            print_json({"text": text, "tokens": generation.tokens, **asdict(generation.statistics)})
            return
        print_pieces(generation)
        echo(summary(generation), err=True)
