"""``shaderloom inspect FOLDER``: the plans of the decoder in a folder, one for each number of tokens of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..runtime.plan.device_profile import DeviceProfile
from . import inspect_output as output
from .common import print_json
from .terminal import echo


def looks_like_decoder(path: Path) -> bool:
    """Return whether a path is a folder with the settings of a decoder."""
    return path.is_dir() and any((path / name).is_file() for name in ("genai_config.json", "config.json"))


def show_decoder(path: Path, profile: DeviceProfile, options: dict[str, Any], cache: bool, as_json: bool) -> None:
    """Print the plan of each run, with a heading."""
    from ..generate.decoder import CHUNKS, DecoderForm
    from ..generate.folder import ModelFolder
    from ..generate.model_source import OPTIONS
    from ..inspect.inspected_plan import inspect_model
    from ..model.model import Model

    folder = ModelFolder.read(path)
    form = DecoderForm(folder, None, cache)
    model = Model(folder.model, dynamic=form.dynamic, cache=cache, options={**options, **OPTIONS})
    described = {}
    for tokens in CHUNKS:
        inspected = inspect_model(model, form.shapes(tokens), profile)
        if as_json:
            described[str(tokens)] = inspected.describe()
            continue
        echo(f"runs of {tokens} token{'' if tokens == 1 else 's'}:")
        output.print_plan(inspected, None, False)
        echo()
    if as_json:
        print_json(described)
