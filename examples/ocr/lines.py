"""The common preprocessing of the two models that look at one text line."""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .session import to_network_input

MEAN = DEVIATION = (0.5, 0.5, 0.5)


def scaled_width(line: NDArray[np.uint8], height: int) -> int:
    """The width of a line that is resized to a height in proportion."""
    return max(1, math.ceil(line.shape[1] * height / line.shape[0]))


def line_input(line: NDArray[np.uint8], height: int, width: int) -> NDArray[np.float32]:
    """[H, W, 3] -> [1, 3, height, width]: resized in proportion, squeezed if too long, padded with zeros on the right.

    Zero is middle grey after normalisation; it is what the models saw behind short lines in training.
    """
    content_width = min(width, scaled_width(line, height))
    resized = Image.fromarray(line).resize((content_width, height), Image.Resampling.BILINEAR)
    values = np.zeros((1, 3, height, width), np.float32)
    values[..., :content_width] = to_network_input(np.asarray(resized), MEAN, DEVIATION)
    return values
