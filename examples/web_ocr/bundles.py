"""The three models of the OCR pipeline as bundles for the web, compiled for a fixed set of shapes and kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from examples.ocr.fetch import ANGLE, DETECTION, RECOGNITION, PackagedModel, fetch_models
from shaderloom.bundles.compile import compile_bundle
from shaderloom.cache import compiler_version, key_of

Shape = tuple[int, ...]

#: Told what is done, and how much of how much
Progress = Callable[[str, int, int], None]

MODELS: Mapping[str, PackagedModel] = {"detection": DETECTION, "angle": ANGLE, "recognition": RECOGNITION}

#: Pictures are fitted into one of the detector's sizes, lines padded to one of the recogniser's widths.
SHAPES: Mapping[str, Sequence[Shape]] = {
    "detection": [(1, 3, 320, 640), (1, 3, 640, 640), (1, 3, 640, 320)],
    "angle": [(1, 3, 48, 192)],
    "recognition": [(1, 3, 48, 320), (1, 3, 48, 480), (1, 3, 48, 640), (1, 3, 48, 960)],
}


def build_bundles(
    folder: Path, shapes: Mapping[str, Sequence[Shape]] = SHAPES, progress: Progress = lambda what, done, total: None
) -> dict[str, Path]:
    """The bundle of each model in ``folder``, compiled if it is not there or was compiled from other sources.

    Raises the errors of ``fetch_models`` and of the compiler.
    """
    folder.mkdir(parents=True, exist_ok=True)
    bundles = {}
    for (name, model), path in zip(MODELS.items(), fetch_models(MODELS.values()), strict=True):
        facts = {"model": model.sha256, "shapes": shapes[name], "compiler": compiler_version()}
        stamp = folder / f"{name}.json"
        bundles[name] = folder / f"{name}.shaderbundle"
        content = json.dumps({"key": key_of("web-ocr", facts)})
        if bundles[name].is_dir() and stamp.is_file() and stamp.read_text(encoding="utf-8") == content:
            continue
        stamp.unlink(missing_ok=True)
        if bundles[name].exists():
            shutil.rmtree(bundles[name])
        # The models' one input is called x.
        compile_bundle(path, bundles[name], shapes=[{"x": shape} for shape in shapes[name]], progress=progress)
        stamp.write_text(content, encoding="utf-8")
    return bundles
