"""The three models in a row: picture -> text lines in reading order."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .classify import AngleClassifier
from .detect import DetectionConfig, Detector
from .fetch import ANGLE, DETECTION, RECOGNITION, fetch_models
from .geometry import RotatedBox, crop
from .recognise import Recogniser, read_characters
from .session import MakeSession, Model

# A reading that the recogniser itself doubts this much is texture rather than text.
TEXT_THRESHOLD = 0.5


@dataclass(frozen=True)
class TextLine:
    """One line of text. The scores are probabilities: of the box, and the mean over the characters."""

    text: str
    score: float
    box: RotatedBox
    box_score: float
    upside_down: bool


@dataclass(frozen=True)
class ModelPaths:
    detection: Path
    angle: Path
    recognition: Path

    @classmethod
    def fetch(cls) -> "ModelPaths":
        """The cached models, downloaded if need be."""
        return cls(*fetch_models([DETECTION, ANGLE, RECOGNITION]))


def in_reading_order(boxes: Sequence[RotatedBox]) -> list[int]:
    """The order in which to read boxes: rows from top to bottom, each from left to right.

    A box joins the row above it if its centre is within half the smaller height of the row's first box.
    """
    rows: list[list[int]] = []
    for index in sorted(range(len(boxes)), key=lambda index: boxes[index].y):
        box = boxes[index]
        if rows:
            first = boxes[rows[-1][0]]
            if box.y - first.y < min(_vertical_extent(box), _vertical_extent(first)) / 2:
                rows[-1].append(index)
                continue
        rows.append([index])
    return [index for row in rows for index in sorted(row, key=lambda index: boxes[index].x)]


def _vertical_extent(box: RotatedBox) -> float:
    return float(np.ptp(box.corners()[:, 1]))


class OcrPipeline:
    """Reads pictures. ``make_session(path)`` loads a model into the runtime of the caller's choice."""

    def __init__(
        self, make_session: MakeSession, paths: ModelPaths | None = None, config: DetectionConfig | None = None
    ) -> None:
        paths = paths or ModelPaths.fetch()
        self.models = {
            "detection": Model(make_session(paths.detection)),
            "angle": Model(make_session(paths.angle)),
            "recognition": Model(make_session(paths.recognition)),
        }
        self._detect = Detector(self.models["detection"], config)
        self._classify = AngleClassifier(self.models["angle"])
        self._recognise = Recogniser(self.models["recognition"], read_characters(paths.recognition))

    def __call__(self, picture: NDArray[np.uint8]) -> list[TextLine]:
        """The lines of text of an [H, W, 3] RGB picture in reading order."""
        detections = self._detect(picture)
        lines = []
        for index in in_reading_order([detected.box for detected in detections]):
            box = detections[index].box
            line = crop(picture, box)
            angle = self._classify(line)
            if angle.upside_down:
                line = np.ascontiguousarray(line[::-1, ::-1])
            reading = self._recognise(line)
            if reading.score >= TEXT_THRESHOLD:
                lines.append(TextLine(reading.text, reading.score, box, detections[index].score, angle.upside_down))
        return lines
