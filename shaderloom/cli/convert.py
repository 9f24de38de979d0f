"""``shaderloom convert``: make a folder of a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .command import as_command
from .common import format_bytes
from .terminal import echo


@as_command
def command(
    file: Annotated[Path, typer.Argument(metavar="FILE.gguf", help="A GGUF file of the llama or qwen2 family.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="The folder to write.")],
) -> None:
    """Convert a GGUF file to a folder of an ONNX decoder with its tokenizer.

    Weights of Q4_0, Q4_1, Q8_0, F16 and F32 keep their codes and scales. onnxruntime-genai reads the folder, too.

    [bold]Example[/bold]

      shaderloom convert SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2
    """
    from ..convert.gguf_decoder import convert_gguf

    convert_gguf(file, output)
    size = sum(path.stat().st_size for path in output.iterdir())
    echo(f"{output}: {format_bytes(size)}; talk with it: shaderloom chat {output}")
