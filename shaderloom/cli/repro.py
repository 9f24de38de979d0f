"""``shaderloom repro``: one kernel as a script that runs on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import parse_dynamic, parse_options, parse_pairs, parse_shapes, progress, readable_errors, unwritable
from .options import (
    CacheOption,
    DebugOption,
    DeviceOption,
    DynamicOption,
    InputOption,
    KernelOption,
    ModelArgument,
    OptionOption,
    SeedOption,
    ShapeOption,
)
from .session import keep_model, make_feeds


@readable_errors
def command(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.py", help="Where to write the script.")],
    kernel: KernelOption = None,
    call: Annotated[
        int | None, typer.Option("--call", metavar="N", help="This call of a run, instead of a kernel's first.")
    ] = None,
    inputs: InputOption = None,
    shapes: ShapeOption = None,
    dynamic: DynamicOption = None,
    seed: SeedOption = 0,
    options: OptionOption = None,
    device: DeviceOption = None,
    cache: CacheOption = True,
    debug: DebugOption = False,
) -> None:
    """Write one kernel with its inputs and its result as a Python script that needs numpy and wgpu alone.

    The script compares what the kernel gives with the recorded result and times it: attach it to a bug report, or
    change the shader in it and see.

    [bold]Examples[/bold]

      shaderloom repro resnet50.onnx --kernel 0 -o conv.py

      shaderloom repro bert.onnx --shape input_ids=1x128 --shape attention_mask=1x128 --call 11 -o gelu.py
    """
    keep_model(output, model)
    from ..model import Model
    from ..repro import find_call, make_script
    from ..runtime.caps import Caps, MemoryAccount
    from ..runtime.loader import WeightPool
    from ..session import InferenceSession

    with progress() as report:
        sizes, chosen = parse_dynamic(dynamic), parse_options(options)
        with InferenceSession(model, device=device, dynamic=sizes, cache=cache, options=chosen) as session:
            feeds = make_feeds(session, parse_pairs(inputs, "--input"), parse_shapes(shapes), seed)
            plan = session.plan_for(feeds)
            found = session.device
        number = find_call(plan, kernel, call)
        report(f"running up to call {number}", 0, 0)
        opened = Model(model, dynamic=sizes, cache=False, options=chosen)
        pool = WeightPool(found, opened.sources, MemoryAccount(Caps().device_memory))
        try:
            text = make_script(found, plan, pool, feeds, number, title=model.name)
        finally:
            pool.close()
            opened.close()
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(output, error) from error
    typer.echo(f"wrote {output}: call {number}, {', '.join(plan.calls[number].origins)}")
