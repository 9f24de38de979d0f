"""``shaderloom bench-tokens``: tokens a second of a decoder."""

from __future__ import annotations

from typing import Annotated

import typer

from .command import as_command
from .common import format_bytes, parse_shapes, print_json
from .generation import FolderArgument, FolderOptions
from .options import JsonOption, RepeatOption, ShapeOption
from .terminal import echo, progress


@as_command
def command(
    folder: FolderArgument,
    *,
    prompt: Annotated[int, typer.Option("--prompt", min=1, help="Tokens of the prompt.")] = 128,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Tokens behind it.")] = 32,
    repeat: RepeatOption = 3,
    shapes: ShapeOption = None,
    opening: FolderOptions,
    as_json: JsonOption = False,
) -> None:
    """Measure the decoder of a folder: tokens a second of a prompt and behind it, and the time to the first one.

    The prompt is random and the tokens are the most probable ones, whatever they are. An encoder reads the prompt, or
    random features of a sound; its time is part of that to the first token.

    [bold]Examples[/bold]

      shaderloom bench-tokens smollm2 --prompt 512 --tokens 64

      shaderloom bench-tokens whisper-tiny --shape input_features=1x80x3000
    """
    from ..generate.decoder import CachedDecoder
    from ..generate.encoded_decoder import EncodedDecoder
    from ..generate.folder import ModelFolder
    from ..generate.token_benchmark import measure_tokens
    from ..runtime.plan.errors import InputError

    with progress(quiet=as_json) as report:
        settings = ModelFolder.read(folder, opening.file, trust=opening.trust)
        decoder = (CachedDecoder if settings.encoder is None else EncodedDecoder)(
            settings,
            device=opening.device,
            max_length=opening.max_length,
            cache=opening.cache,
            progress=report,
        )
        length = tokens + (len(settings.starts) or prompt)
        if length > decoder.form.max_length:
            raise InputError(
                f"{length} tokens are more than the length of {decoder.form.max_length}", hint="--max-length"
            )
        result = measure_tokens(decoder, prompt, tokens, repeat, parse_shapes(shapes))
        decoder.close()
    if as_json:
        print_json(result)
        return
    echo(f"{result['device']}, {result['plans']} plans, {format_bytes(result['device_bytes'])} on the device")
    echo(
        f"prompt of {result['prompt_tokens']}: {result['prefill_tokens_per_second']:.1f} tokens/s, first token after "
        f"{result['first_token_seconds']:.3f} s ({result['first_token_seconds_new']:.2f} s with compilation)"
    )
    echo(f"behind it: {result['decode_tokens_per_second']:.1f} tokens/s")
