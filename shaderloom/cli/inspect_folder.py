"""``shaderloom inspect FOLDER``: the plans of the decoder in a folder, one for each kind of run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import inspect_output as output
from .common import print_json
from .terminal import echo

if TYPE_CHECKING:
    from ..generate.decoder_runs import DecoderRun
    from ..inspect.inspected_plan import InspectedPlan
    from .inspect_opening import Opening

#: Rows that are encoded in the runs of a folder with an encoder
ENCODED_ROWS = 128


def looks_like_decoder(path: Path) -> bool:
    """Return whether a path is a folder with the settings of a decoder."""
    return path.is_dir() and any((path / name).is_file() for name in ("genai_config.json", "config.json"))


def show_decoder(path: Path, opening: Opening, options: dict[str, Any], as_json: bool) -> None:
    """Print the plan of each run, with a heading."""
    described = {}
    for run in _runs(path, opening):
        inspected = _inspected(run, opening, options)
        if as_json:
            described[run.title] = inspected.describe()
            continue
        echo(f"{run.title}:")
        output.print_plan(inspected, None, False)
        echo()
    if as_json:
        print_json(described)


def _runs(path: Path, opening: Opening) -> list[DecoderRun]:
    from ..generate.decoder import DecoderForm
    from ..generate.encoded_decoder import EncodedForm
    from ..generate.folder import ModelFolder

    folder = ModelFolder.read(path)
    if folder.encoder is None:
        folder.refuse_shapes(opening.inputs.shapes or {})
        return DecoderForm(folder, None, opening.cache).runs()
    return EncodedForm(folder, None, opening.cache).runs(ENCODED_ROWS, opening.inputs.shapes)


def _inspected(run: DecoderRun, opening: Opening, options: dict[str, Any]) -> InspectedPlan:
    from ..inspect.inspected_plan import inspect_model
    from ..model.model import Model

    options = {**options, **run.options}
    model = Model(run.model, dynamic=dict(run.dynamic), cache=opening.cache, options=options)
    return inspect_model(model, dict(run.shapes), opening.profile)
