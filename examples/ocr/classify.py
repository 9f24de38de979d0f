"""Angle classification: does a cropped text line stand on its head?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .lines import line_input
from .session import Model

HEIGHT, WIDTH = 48, 192
# The classifier's outputs are the probabilities of 0 and of 180 degrees; a doubtful line is left as it is.
THRESHOLD = 0.9


@dataclass(frozen=True)
class Angle:
    upside_down: bool
    score: float


class AngleClassifier:
    def __init__(self, model: Model) -> None:
        self.model = model

    def __call__(self, line: NDArray[np.uint8]) -> Angle:
        """Classify an [H, W, 3] RGB crop. Of a line longer than the input only the beginning is looked at."""
        visible = line[:, : max(1, round(line.shape[0] * WIDTH / HEIGHT))]
        upright, upside_down = self.model(line_input(visible, HEIGHT, WIDTH))[0]
        return Angle(bool(upside_down > THRESHOLD), float(max(upright, upside_down)))
