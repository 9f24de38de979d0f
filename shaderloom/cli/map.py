"""``shaderloom map``: run a model over files, on all devices, so that it can be resumed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..runtime.bundle.files import is_bundle
from ..runtime.plan.errors import InputError, MissingFileError
from .command import as_command
from .common import count_text, print_json
from .options import CacheOption, JsonOption, ModelArgument, OptionGroup, StorageOptions
from .terminal import echo, progress

if TYPE_CHECKING:
    from ..mapping.job import MapJob, MapSummary


class ResultFormat(StrEnum):
    """Values of ``--format``."""

    parquet = "parquet"
    npz = "npz"


class OnError(StrEnum):
    """Values of ``--on-error``."""

    stop = "stop"
    record = "record"


@dataclass(frozen=True, kw_only=True)
class PictureOptions(OptionGroup):
    """How pictures become inputs."""

    image: Annotated[
        str | None,
        typer.Option("--image", metavar="224x224", help="Pictures are scaled to cover this size, and cropped."),
    ] = None
    mean: Annotated[
        str | None, typer.Option("--mean", metavar="R,G,B", help="Subtracted from the channels, which are 0 to 1.")
    ] = None
    std: Annotated[str | None, typer.Option("--std", metavar="R,G,B", help="What the channels are divided by.")] = None


@as_command
def command(
    model: ModelArgument,
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="INPUTS...", help="Files .npy, .npz, .parquet, .arrow; pictures, or folders of them."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="The folder of the result, new or to be resumed.")
    ],
    devices: Annotated[
        str, typer.Option("--devices", metavar="all|cpu|0,1", help="Adapters, by index or part of a name.")
    ] = "all",
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="Run on all GPUs of a cluster of Ray; auto: of this machine's."),
    ] = None,
    batch: Annotated[
        str,
        typer.Option(
            "--batch",
            metavar="auto|open|N",
            help="Rows of a run. auto: up to 32 where the model allows it; open: also of a model of one row.",
        ),
    ] = "auto",
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="INPUT=COLUMN,COLUMN",
            help="Columns of inputs, where names differ, and columns of a table that the result has, too.",
        ),
    ] = None,
    format: Annotated[
        ResultFormat | None,
        typer.Option("--format", help="Of the result. Default: npz for arrays, parquet for tables and pictures."),
    ] = None,
    part_rows: Annotated[int, typer.Option("--part-rows", min=1, help="Rows of a part, which is done or not.")] = 1024,
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="stop at a row that fails, or record it in the column error.")
    ] = OnError.stop,
    *,
    picture: PictureOptions,
    options: StorageOptions,
    cache: CacheOption = True,
    as_json: JsonOption = False,
) -> None:
    """Run a model over many inputs, on all devices, and write the outputs to a folder.

    Every input of the model gets a row of a file: of an array, a table, or a picture. The folder has a file for each
    part of 1024 rows. After Ctrl-C, a crash or a power cut the same command goes on with the parts that are missing.

    [bold]Examples[/bold]

      shaderloom map mobilenet.onnx photos/ -o scores --image 224x224 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225

      shaderloom map bert.onnx texts.parquet -o embeddings --columns input_ids=tokens,attention_mask=mask,id

      shaderloom map model.onnx samples.npy -o results --devices 0,1 --batch open
    """
    from ..mapping.job import run_map

    job = _job(model, inputs, output, columns, picture, format)
    if not model.exists():
        raise MissingFileError(model)
    stated: dict[str, Any] = {"batch": batch, "f16": options.f16, **options.storage}
    with progress(quiet=as_json) as report:
        summary = run_map(
            job.with_rows(part_rows, record_errors=on_error is OnError.record),
            lambda: _open_pool(model, ray or devices, batch, options, cache, is_ray=ray is not None),
            stated,
            report,
        )
    _print(summary, output, as_json)


def _open_pool(model: Path, devices: str, batch: str, options: StorageOptions, cache: bool, *, is_ray: bool) -> Any:
    rows: Any = int(batch) if batch.isdecimal() else "auto"
    if not batch.isdecimal() and batch not in ("auto", "open"):
        raise InputError(f"--batch wants auto, open or a number of rows, not '{batch}'")
    settings: dict[str, Any] = {} if is_bundle(model) else {"cache": cache}
    if options.storage:
        settings["options"] = options.storage
    if is_ray:
        from ..distributed.ray_pool import RayPool

        if batch == "open":
            settings["batch"] = "open"
        return RayPool(model, devices, batch=rows if isinstance(rows, int) else None, options=settings)
    from ..pool.pool import Pool

    chosen: Any = devices
    if devices not in ("all", "cpu"):
        chosen = [int(each) if each.isdecimal() else each for each in devices.split(",")]
    return Pool(model, chosen, batch=rows, open_batch=batch == "open", **settings)


def _job(
    model: Path,
    inputs: list[Path],
    output: Path,
    columns: str | None,
    picture: PictureOptions,
    format: ResultFormat | None,
) -> MapJob:
    from ..mapping.job import MapJob
    from ..mapping.pictures import parse_form

    texts = [text for text in (columns or "").split(",") if text]
    named = dict(text.split("=", 1) for text in texts if "=" in text)
    is_arrays = all(path.suffix.lower() in (".npy", ".npz") for path in inputs)
    if picture.image is None and (picture.mean or picture.std):
        raise InputError("--mean and --std are for pictures", hint="--image 224x224")
    if picture.image is not None and is_arrays:
        raise InputError("--image is for pictures, not for arrays", hint="leave it out")
    return MapJob(
        model,
        tuple(inputs),
        output,
        named,
        tuple(text for text in texts if "=" not in text),
        None if picture.image is None else parse_form(picture.image, picture.mean, picture.std),
        format.value if format is not None else "npz" if is_arrays else "parquet",
    )


def _print(summary: MapSummary, output: Path, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "rows": summary.rows,
                "computed": summary.computed,
                "errors": summary.errors,
                "seconds": round(summary.seconds, 3),
            }
        )
        return
    rate = f", {summary.computed / summary.seconds:,.1f} a second" if summary.computed and summary.seconds else ""
    present = summary.rows - summary.computed
    echo(
        f"{output}: {count_text(summary.rows, 'row')}"
        + (f", {present:,} of them computed before" if present else "")
        + (f", {count_text(summary.errors, 'error')}" if summary.errors else "")
        + f"; {summary.seconds:.1f} s{rate}"
    )
