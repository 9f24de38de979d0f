"""``shaderloom repro``: write one kernel as a standalone script."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..runtime.plan.errors import InputError, unwritable
from .command import as_command
from .common import parse_options
from .options import CacheOption, DeviceOption, InputOptions, KernelOption, ModelArgument, OptionTexts
from .session import keep_model, make_feeds, open_with_cpu
from .terminal import echo, progress


@as_command
def command(
    model: ModelArgument,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.py", help="Where to write the script.")],
    kernel: KernelOption = None,
    call: Annotated[
        str | None,
        typer.Option("--call", metavar="N|STAGE.N", help="Select a call of the run instead; in a model of stages 2.5."),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", metavar="NAME", help="Select the first kernel of an ONNX node instead, by name or text."
        ),
    ] = None,
    iteration: Annotated[
        str | None,
        typer.Option(
            "--iteration", metavar="N[,N]", help="Iteration of the enclosing loops, from 0. Default: the first."
        ),
    ] = None,
    inputs: InputOptions,
    options: OptionTexts = None,
    device: DeviceOption = None,
    cache: CacheOption = True,
) -> None:
    """Write one kernel with its inputs and its result as a Python script that needs numpy and wgpu alone.

    The script compares what the kernel gives with the recorded result and times it: attach it to a bug report, or
    change the shader in it and see.

    [bold]Examples[/bold]

      shaderloom repro resnet50.onnx --kernel 0 -o conv.py

      shaderloom repro bert.onnx --shape input_ids=1x128 --shape attention_mask=1x128 --call 11 -o gelu.py

      shaderloom repro detector.onnx --call 2.5 -o call.py

      shaderloom repro decoder.onnx --node /decoder/MatMul_3 --iteration 4 -o matmul.py
    """
    keep_model(output, model)
    from ..inspect.repro import CallSelection, cut

    number, stage = parse_call(call)
    iterations = parse_iterations(iteration)
    if number is None and kernel is None and node is None:
        raise InputError("which kernel?", hint="give --kernel, --call or --node; inspect, profile and check name them")
    with progress() as report:
        chosen = parse_options(options)
        with open_with_cpu(model, device=device, dynamic=inputs.dynamic, cache=cache, options=chosen) as session:
            feeds = make_feeds(session, inputs)
            report("running to the kernel", 0, 0)
            script = cut(session._wgpu, feeds, CallSelection(kernel, number, node, stage, iterations), title=model.name)
    try:
        output.write_text(script.text, encoding="utf-8")
    except OSError as error:
        raise unwritable(output, error) from error
    echo(f"wrote {output}: {script}")


def parse_call(text: str | None) -> tuple[int | None, int | None]:
    """Parse ``N`` or ``STAGE.N`` into the numbers of the call and of the stage."""
    if text is None:
        return None, None
    first, dot, second = text.partition(".")
    if not first.isdecimal() or (dot and not second.isdecimal()):
        raise InputError(f"'{text}' is not a call", hint="write a number, or stage and call as in 2.5")
    return (int(second), int(first)) if dot else (int(first), None)


def parse_iterations(text: str | None) -> tuple[int, ...] | None:
    """Parse loop iterations ``N,N``, the outermost loop first."""
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise InputError(
            f"'{text}' is not an iteration", hint="write numbers from 0, the outermost loop first: 3 or 3,0"
        )
    return tuple(map(int, parts))
