"""The program of examples/ocr up to its text: three models, whose sizes come from the picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.workers.protocol import Job, Opened, serve
from examples.ocr.fetch import ANGLE, DETECTION, RECOGNITION
from examples.ocr.images import draw_sample
from examples.ocr.pipeline import ModelPaths, OcrPipeline


def load() -> object:
    import shaderloom

    return shaderloom.InferenceSession


def open_model(job: Job, feeds: dict[str, np.ndarray]) -> Opened:
    import shaderloom

    sessions = []

    def make(path: Path) -> shaderloom.InferenceSession:
        sessions.append(shaderloom.InferenceSession(path))
        return sessions[-1]

    folder = Path(job.model).parent
    read = OcrPipeline(make, ModelPaths(*(folder / part.file_name for part in (DETECTION, ANGLE, RECOGNITION))))
    picture = draw_sample()
    facts = {"version": shaderloom.__version__, "device": sessions[0].device.name}
    return Opened(lambda: [np.array([line.score for line in read(picture)])], facts)


if __name__ == "__main__":
    serve(open_model, load)
