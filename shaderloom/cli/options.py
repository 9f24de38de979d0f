"""Arguments and options that several commands share: one name, one value, one explanation each.

A command's parameters are in the order of its help: the model, the command's own options, inputs and their shapes,
options of the compiler, the device, the cache, and the output format.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
ModelOrBundleArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file, or a shader bundle.")]
BundleArgument = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A shader bundle: a folder or a zip.")]

InputOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=FILE.npy|random", help="Value of an input; repeat for more inputs."),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1x3x224x224", help="Shape of an input; repeat for more inputs."),
]
DynamicOption = Annotated[
    list[str] | None,
    typer.Option("--dynamic", metavar="NAME=LOW:HIGH[:STEP]", help="Keep a named dimension symbolic; repeatable."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of random inputs.")]
RepeatOption = Annotated[int, typer.Option("--repeat", min=1, help="Number of runs; medians are shown.")]

OptionOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=JSON", help="Option of the compiler, like verify=true; repeatable."),
]
HalfOption = Annotated[
    bool, typer.Option("--f16", help="Store weights and activations in half precision where they fit.")
]

KernelOption = Annotated[
    str | None, typer.Option("--kernel", metavar="N|ID", help="Kernel by number, or by the start of its id.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", "--adapter", metavar="NAME|INDEX", help="Adapter: its index or part of its name (see devices)."
    ),
]
CacheOption = Annotated[bool, typer.Option("--cache/--no-cache", help="Use the disk cache of compiled plans.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to standard output and nothing else.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
