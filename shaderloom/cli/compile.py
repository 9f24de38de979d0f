"""``shaderloom compile``: compile a model ahead of time into a shader bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..runtime.bundle.format import web_limit
from ..runtime.plan.device_profile import WEB_LIMITS
from ..runtime.plan.errors import InputError
from .command import as_command
from .common import (
    count_text,
    format_bytes,
    parse_bytes,
    parse_dynamic,
    parse_pairs,
    parse_ranges,
    parse_shapes,
    print_json,
    unreadable,
)
from .generation import FileOption, MaxLengthOption
from .options import (
    DeviceOption,
    DynamicOption,
    JsonOption,
    ModelArgument,
    OptionGroup,
    ProvidersOption,
    RangeOption,
    StorageOptions,
)
from .session import parse_providers
from .terminal import echo, progress

if TYPE_CHECKING:
    from ..runtime.bundle.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class BundleOptions(OptionGroup):
    """Options of a bundle: its target and its form."""

    target: Annotated[
        str,
        typer.Option(
            "--target", metavar="web|web-software|native|this-device", help="Devices that the bundle must run on."
        ),
    ] = "web"
    software: Annotated[
        bool | None,
        typer.Option(
            "--software/--no-software",
            help="Add kernels for adapters that compute on the CPU, as in a browser without a GPU. "
            "Default: for web and native.",
        ),
    ] = None
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limits",
            metavar="NAME=SIZE",
            help="Limit of the target's devices, such as maxBufferSize=1GiB, which the bundle asks for as far as it "
            "needs it; repeatable.",
        ),
    ] = None
    as_zip: Annotated[bool, typer.Option("--zip", help="Write one file instead of a folder.")] = False
    sample: Annotated[
        bool, typer.Option("--sample", help="Run on this machine and store inputs and outputs as a self-test.")
    ] = False
    sign_key: Annotated[
        Path | None,
        typer.Option("--sign", metavar="KEY.pem", help="Sign the bundle with this private Ed25519 key."),
    ] = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of ``compile_bundle``."""
        sizes = parse_pairs(self.limits, "--limits").items()
        return {**asdict(self), "limits": {name: parse_bytes(size, "--limits") for name, size in sizes}}


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(OptionGroup):
    """Where a bundle goes: to a place of its own, or beside a page."""

    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="NAME.shaderbundle", help="Where to write the bundle.")
    ] = None
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="DIR",
            help="Write the bundle, the browser runner and a page that uses them into a folder.",
        ),
    ] = None

    def target(self, model: Path, *, as_zip: bool) -> Path:
        """Return the path of the bundle; raise :class:`InputError` for options that do not fit."""
        if self.output is not None and self.page is not None:
            raise InputError("--output and --page each say where the bundle goes", hint="leave one of them out")
        if self.output is not None:
            return self.output
        if self.page is None:
            raise InputError("the bundle needs a place", hint="--output NAME.shaderbundle, or --page DIR")
        if as_zip:
            raise InputError("a page reads a bundle that is a folder", hint="leave out --zip")
        return self.page / f"{model.stem}.shaderbundle"


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(OptionGroup):
    """Whether the model is a folder whose decoder generates text, and how long texts may be."""

    generate: Annotated[
        bool,
        typer.Option("--generate", help="The model is a folder with a decoder; the bundle generates text with it."),
    ] = False
    file: FileOption = None
    max_length: MaxLengthOption = None
    drafts: Annotated[
        bool, typer.Option("--drafts", help="Add the plan that verifies drafts: generate --prompt-lookup takes it.")
    ] = False
    batch: Annotated[
        int, typer.Option("--texts", min=0, help="Add plans for so many texts together, for generate_batch.")
    ] = 0

    def check(self, others: Mapping[str, Any]) -> None:
        """Raise :class:`InputError` for an option without ``--generate``, or one of ``others`` with it."""
        if not self.generate and (self.file is not None or self.max_length is not None or self.drafts or self.batch):
            raise InputError(
                "--file, --max-length, --drafts and --texts are for bundles that generate text", hint="add --generate"
            )
        unfit = [name for name, value in others.items() if value]
        if self.generate and unfit:
            raise InputError(f"{unfit[0]} is not for bundles that generate text", hint=f"leave out {unfit[0]}")


@as_command
def command(
    model: ModelArgument,
    *,
    place: PlaceOptions,
    bundle: BundleOptions,
    generation: GenerationOptions,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="NAME=1x3x224x224",
            help="Shape of an input. An input that is named again starts the next shape key.",
        ),
    ] = None,
    dynamic: DynamicOption = None,
    ranges: RangeOption = None,
    storage: StorageOptions,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=FILE.npy", help="Input of samples and calibration, for the key of its shape."
        ),
    ] = None,
    device: DeviceOption = None,
    runs_on: ProvidersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a model to a bundle that runs without the compiler, from Python and in a browser.

    [bold]Examples[/bold]

      shaderloom compile squeezenet.onnx -o squeezenet.shaderbundle --sample

      shaderloom compile rec.onnx -o rec.shaderbundle --shape x=1x3x48x320 --shape x=1x3x48x480

      shaderloom compile squeezenet.onnx -o half.shaderbundle --f16 --input input=picture.npy

      shaderloom compile detector.onnx -o detector.shaderbundle --range boxes=0:300

      shaderloom compile squeezenet.onnx --page public

      shaderloom compile bert.onnx -o bert.shaderbundle --shape ids=1x128 --dynamic sequence=1:512

      shaderloom compile net.onnx -o net.shaderbundle --limits maxStorageBufferBindingSize=256MiB

      shaderloom compile smollm2 -o chat.shaderbundle --generate
    """
    _check_providers(runs_on)
    own = {
        "--shape": split_shapes(shapes),
        "--dynamic": parse_dynamic(dynamic),
        "--range": parse_ranges(ranges, "--range"),
        "--input": _read_inputs(parse_pairs(inputs, "--input")),
    }
    named = {"--shape": shapes, "--dynamic": dynamic, "--range": ranges, "--input": inputs}
    generation.check({**named, "--sample": bundle.sample, "--page": place.page})
    target = place.target(model, as_zip=bundle.as_zip)
    with progress(quiet=as_json) as report:
        manifest = _compiled(
            model, target, own, generation, device=device, options=storage.storage, progress=report, **bundle.arguments
        )
    summary = _summary(target, manifest)
    note = None if place.page is None else _write_page(place.page, manifest, target, summary)
    if as_json:
        print_json(summary)
        return
    _print(summary, manifest)
    if note is not None:
        echo(note)


def _compiled(
    model: Path, path: Path, own: Mapping[str, Any], generation: GenerationOptions, **arguments: Any
) -> Manifest:
    """Write a bundle that generates text, or one of a model with options of its ``own``."""
    if generation.generate:
        from ..generate.bundling import compile_generator

        own = {"max_length": generation.max_length, "file": generation.file, "drafts": generation.drafts}
        own["batch"] = generation.batch
        return compile_generator(model, path, **own, **arguments)
    from ..bundles.compile import compile_bundle

    names = {"--shape": "shapes", "--dynamic": "dynamic", "--range": "ranges", "--input": "sample_inputs"}
    return compile_bundle(model, path, **{names[option]: value for option, value in own.items()}, **arguments)


def _write_page(page: Path, manifest: Manifest, target: Path, summary: dict[str, Any]) -> str:
    """Write the page for a bundle, add it to the summary, and return a line that says what became of it."""
    from ..serve.standalone import write_page

    index = page / "index.html"
    summary["page"] = str(index)
    state = "runs it" if write_page(page, manifest, target.name) else "is there already and stays"
    return f"{index}: {state}; any server can host {page}"


def _print(summary: Mapping[str, Any], manifest: Manifest) -> None:
    """Print a line of a bundle's summary, what it asks of devices, and one for each range of its programs."""
    plans = count_text(len(manifest.plan_keys), "plan")
    if manifest.programs:
        plans = f"{count_text(len(manifest.programs), 'program')} of {plans}"
    echo(
        f"{summary['path']}: {plans}, {count_text(summary['shaders'], 'shader')}, "
        f"{count_text(summary['weights'], 'weight')} "
        f"({format_bytes(summary['weight_bytes'])}), {format_bytes(summary['bytes'])} in all"
    )
    if larger := {name: amount for name, amount in manifest.limits.items() if amount > WEB_LIMITS.get(name, amount)}:
        echo("  asks for " + ", ".join(f"{web_limit(name)} of {amount:,}" for name, amount in larger.items()))
    for program in manifest.programs:
        for name, sizes in program.ranges.items():
            echo(f"  {name}: {sizes}")


def _check_providers(text: str | None) -> None:
    """Raise :class:`InputError` for ``--providers`` that a bundle cannot run on."""
    from ..api.providers import parse_providers as read_names

    if [name for name, _ in read_names(parse_providers(text))] != ["wgpu"]:
        raise InputError("a bundle runs on wgpu alone", hint="leave out --providers, or open the model: shaderloom run")


def _summary(path: Path, manifest: Manifest) -> dict[str, Any]:
    return {
        "path": str(path),
        "target": manifest.target,
        "plans": [{name: list(dims) for name, dims in plan.shapes.items()} for plan in manifest.plans],
        "programs": [
            {
                "shapes": {name: list(dims) for name, dims in program.shapes.items()},
                "stages": sum(1 for _ in program.stages),
                "ranges": {name: sizes.to_json() for name, sizes in program.ranges.items()},
            }
            for program in manifest.programs
        ],
        "shaders": sum(name.startswith("shaders/") for name in manifest.files),
        "weights": len(manifest.weights),
        "weight_bytes": sum(part.length for parts in manifest.weights.values() for part in parts),
        "samples": len(manifest.samples),
        "bytes": sum(record.size for record in manifest.files.values()),
        "features": list(manifest.features),
        "limits": dict(manifest.limits),
    }


def split_shapes(texts: Sequence[str] | None) -> list[dict[str, tuple[int, ...]]]:
    """Group shapes into shape keys: an input that is named again starts the next key."""
    sets: list[dict[str, tuple[int, ...]]] = []
    for text in texts or ():
        ((name, shape),) = parse_shapes([text]).items()
        if not sets or name in sets[-1]:
            sets.append({})
        sets[-1][name] = shape
    return sets


def _read_inputs(values: dict[str, str]) -> dict[str, Any]:
    import numpy as np

    arrays = {}
    for name, value in values.items():
        try:
            arrays[name] = np.load(value, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise unreadable(value, error, name) from error
        if not isinstance(arrays[name], np.ndarray):
            raise InputError(f"'{value}' holds more than one array", tensor=name, hint="it must be a .npy file")
    return arrays
