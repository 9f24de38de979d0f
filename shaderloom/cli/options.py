"""Arguments and options that several commands share: one name, one value, one explanation each.

What belongs together is an :class:`OptionGroup`, which a command takes as one parameter and which parses its texts.  A
command's parameters are in the order of its help: the model, the command's own options, inputs and their shapes,
options of the compiler, the device, the cache, and the output format.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from .common import parse_dynamic, parse_options, parse_pairs, parse_shapes

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
ModelOrBundleArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file, or a shader bundle.")]
BundleArgument = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A shader bundle: a folder or a zip.")]

ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1x3x224x224", help="Shape of an input; repeat for more inputs."),
]
DynamicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dynamic",
        metavar="auto|off|NAME=LOW:HIGH[:STEP]",
        help="auto: one plan for a range of sizes that keep changing; off: one for each size. "
        "NAME=LOW:HIGH keeps a named dimension symbolic; repeatable.",
    ),
]
RangeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="NAME=LOW:HIGH[:STEP]",
        help="Range of an integer that runs read, of a model in several stages; repeatable. "
        "Default: 0 to the most that is possible, or that fits the target.",
    ),
]
RepeatOption = Annotated[int, typer.Option("--repeat", min=1, help="Number of runs; medians are shown.")]

KernelOption = Annotated[
    str | None, typer.Option("--kernel", metavar="N|ID", help="Kernel by number, or by the start of its id.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", "--adapter", metavar="NAME|INDEX", help="Adapter: its index or part of its name (see devices)."
    ),
]
ProvidersOption = Annotated[
    str | None,
    typer.Option(
        "--providers",
        metavar="wgpu,cpu",
        help="Providers in order of preference: wgpu (the default), cpu, or both: what the first cannot run goes on.",
    ),
]
CacheOption = Annotated[bool, typer.Option("--cache/--no-cache", help="Use the disk cache of compiled plans.")]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run a bundle's shaders without bounds checks. Only for bundles whose maker may run code on this machine.",
    ),
]
VerifyKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--verify-key", metavar="PUBLIC.pem", help="Refuse a bundle that is not signed with the other half of this key."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to standard output and nothing else.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@dataclass(frozen=True, kw_only=True)
class OptionGroup:
    """Base of the groups: each field is an option with its default."""


@dataclass(frozen=True, kw_only=True)
class ShapeOptions(OptionGroup):
    """Shapes of the inputs, and ranges of dimensions that stay symbolic."""

    shape_texts: ShapeOption = None
    dynamic_texts: DynamicOption = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return parse_shapes(self.shape_texts)

    @property
    def dynamic(self) -> dict[str, tuple[int, ...]] | str:
        return parse_dynamic(self.dynamic_texts)


@dataclass(frozen=True, kw_only=True)
class InputOptions(ShapeOptions):
    """Inputs of a run: their shapes, and their values or a seed."""

    value_texts: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=FILE.npy|random", help="Value of an input; repeat for more inputs."),
    ] = None
    seed: Annotated[int, typer.Option("--seed", help="Seed of random inputs.")] = 0

    @property
    def values(self) -> dict[str, str]:
        return parse_pairs(self.value_texts, "--input")


class Widen(StrEnum):
    """Values of ``--widen``."""

    auto = "auto"
    off = "off"


class Logits(StrEnum):
    """Values of ``--logits``."""

    all = "all"
    last = "last"


class Activations(StrEnum):
    """Values of ``--activations``."""

    auto = "auto"
    float = "float"
    int8 = "int8"


@dataclass(frozen=True, kw_only=True)
class StorageOptions(OptionGroup):
    """Options of the storage of floats, of the rows that are stored, and of what products read."""

    f16: Annotated[
        bool, typer.Option("--f16", help="Store weights and activations in half precision where they fit.")
    ] = False
    widen: Annotated[
        Widen,
        typer.Option(
            "--widen", help="auto: float32 for what a model declares float16 and exceeds it; off: as declared."
        ),
    ] = Widen.auto
    logits: Annotated[
        Logits,
        typer.Option("--logits", help="last: the logits of a decoder are one row, that of the last valid position."),
    ] = Logits.all
    activations: Annotated[
        Activations,
        typer.Option(
            "--activations",
            help="Round activations of products with weights in blocks to 8 bits: auto: where the model allows it.",
        ),
    ] = Activations.auto

    @property
    def storage(self) -> dict[str, Any]:
        """The compiler options that differ from their defaults."""
        stated = {
            "precision": "float16" if self.f16 else "float32",
            "widen": self.widen.value,
            "logits": self.logits.value,
            "activations": self.activations.value,
        }
        return {name: value for name, value in stated.items() if value not in ("float32", "auto", "all")}


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions(StorageOptions, InputOptions):
    """Inputs of runs, and how the session is opened: ``trust`` and ``verify_key`` are for bundles, ``providers`` and
    ``check_indices`` for models.
    """

    device: DeviceOption = None
    providers: ProvidersOption = None
    check_indices: Annotated[
        bool, typer.Option("--check-indices", help="Fail if an index of a run is out of range, as under onnxruntime.")
    ] = False
    cache: CacheOption = True
    trust: TrustOption = False
    verify_key: VerifyKeyOption = None


OptionTexts = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=JSON", help="Option of the compiler, like verify=true; repeatable."),
]


@dataclass(frozen=True, kw_only=True)
class CompilerOptions(StorageOptions):
    """Options of the compiler by name, and how tensors are stored."""

    option_texts: OptionTexts = None

    @property
    def chosen(self) -> dict[str, Any]:
        return {**parse_options(self.option_texts), **self.storage}
