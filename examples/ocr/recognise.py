"""Text recognition: a cropped line -> its characters, with the PP-OCRv4 recogniser and greedy CTC decoding."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from .lines import line_input, scaled_width
from .session import Model

HEIGHT = 48
# Every width is a shape of its own to compile, so lines are padded to one of few widths.
SHORTEST_WIDTH = 320
WIDTH_STEP = 160
LONGEST_WIDTH = 3200
BLANK = 0


@dataclass(frozen=True)
class Reading:
    """``score`` is the mean probability of the characters, zero for an empty text."""

    text: str
    score: float


def read_characters(path: Path) -> list[str]:
    """The characters of the recogniser's classes, from its metadata; class 0 is the CTC blank, the last a space."""
    model = onnx.load(path, load_external_data=False)
    for entry in model.metadata_props:
        if entry.key == "character":
            return ["", *entry.value.splitlines(), " "]
    raise ValueError(f"{path} has no metadata entry 'character': it is no PP-OCR recogniser")


def bucketed_width(width: int) -> int:
    """The width to pad a line of this width to, at a height of 48."""
    steps = max(0, math.ceil((width - SHORTEST_WIDTH) / WIDTH_STEP))
    return min(SHORTEST_WIDTH + steps * WIDTH_STEP, LONGEST_WIDTH)


def decode(probabilities: NDArray[np.float32], characters: Sequence[str]) -> Reading:
    """Greedy CTC decoding of [steps, classes]: the best class a step, repeats merged, blanks dropped."""
    best = probabilities.argmax(axis=1)
    changed = np.concatenate([[True], best[1:] != best[:-1]])
    emitted = changed & (best != BLANK)
    text = "".join(characters[index] for index in best[emitted])
    score = float(probabilities.max(axis=1)[emitted].mean()) if emitted.any() else 0.0
    return Reading(text, score)


class Recogniser:
    def __init__(self, model: Model, characters: Sequence[str]) -> None:
        self.model = model
        self.characters = characters

    def __call__(self, line: NDArray[np.uint8]) -> Reading:
        """Read an [H, W, 3] RGB crop that is the right way up."""
        width = bucketed_width(scaled_width(line, HEIGHT))
        return decode(self.model(line_input(line, HEIGHT, width))[0], self.characters)
