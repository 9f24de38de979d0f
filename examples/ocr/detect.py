"""Text detection: a picture -> rotated boxes, with the PP-OCRv4 detector.

The network gives each pixel the probability that it belongs to the shrunken core of a text line ("Real-time Scene
Text Detection with Differentiable Binarization", Liao et al., 2020). Boxes are the rectangles around the connected
cores, grown back by the amount that training shrank them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .components import component_runs, outline_points
from .geometry import RotatedBox, inside_box, minimum_area_box
from .session import Model, to_network_input

# Per plane, in the order blue, green, red that the network was trained with.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
# The network halves its input five times.
SIDE_MULTIPLE = 32


@dataclass(frozen=True)
class DetectionConfig:
    """``longest_side`` and ``shortest_core_side`` are in pixels; the thresholds are probabilities."""

    longest_side: int = 960
    pixel_threshold: float = 0.3
    box_threshold: float = 0.6
    unclip_ratio: float = 1.6
    shortest_core_side: float = 3.0


@dataclass(frozen=True)
class DetectedBox:
    box: RotatedBox
    score: float


def network_size(width: int, height: int, longest_side: int) -> tuple[int, int]:
    """The (width, height) to resize to: multiples of 32 near the picture's own, none longer than the limit."""
    scale = min(1.0, longest_side / max(width, height))

    def rounded(side: int) -> int:
        return max(SIDE_MULTIPLE, round(side * scale / SIDE_MULTIPLE) * SIDE_MULTIPLE)

    return rounded(width), rounded(height)


def preprocess(picture: NDArray[np.uint8], config: DetectionConfig) -> NDArray[np.float32]:
    """[H, W, 3] -> [1, 3, network height, network width]."""
    height, width = picture.shape[:2]
    size = network_size(width, height, config.longest_side)
    resized = Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR)
    return to_network_input(np.asarray(resized), MEAN, DEVIATION)


def boxes_from_probabilities(probabilities: NDArray[np.float32], config: DetectionConfig) -> list[DetectedBox]:
    """Turn an [H, W] map of core probabilities into boxes in the map's coordinates, in order of their top pixel."""
    boxes = []
    for runs in component_runs(probabilities > config.pixel_threshold):
        # Half a pixel more than the outermost centres is right in any direction, whole pixels only along the axes.
        core = minimum_area_box(outline_points(runs)).expanded(0.5)
        if core.height < config.shortest_core_side or core.width < config.shortest_core_side:
            continue
        score = box_score(probabilities, core)
        if score < config.box_threshold:
            continue
        # Training shrank each outline by area / perimeter times a ratio; this is its approximate inverse.
        distance = config.unclip_ratio * core.width * core.height / (2 * (core.width + core.height))
        boxes.append(DetectedBox(core.expanded(distance), score))
    return boxes


def box_score(probabilities: NDArray[np.float32], box: RotatedBox) -> float:
    """The mean probability of the pixels whose centres lie in the box; zero if there are none."""
    corners = box.corners()
    limit = np.array(probabilities.shape[::-1])
    low = np.clip(np.floor(corners.min(axis=0)), 0, limit).astype(np.int64)
    high = np.clip(np.ceil(corners.max(axis=0)), 0, limit).astype(np.int64)
    columns, rows = np.arange(low[0], high[0])[None, :], np.arange(low[1], high[1])[:, None]
    inside = inside_box(box, columns, rows)
    values = probabilities[low[1] : high[1], low[0] : high[0]][inside]
    return float(values.mean()) if values.size else 0.0


class Detector:
    def __init__(self, model: Model, config: DetectionConfig | None = None) -> None:
        self.model = model
        self.config = config or DetectionConfig()

    def __call__(self, picture: NDArray[np.uint8]) -> list[DetectedBox]:
        """The text boxes of an [H, W, 3] RGB picture, in its own coordinates."""
        values = preprocess(picture, self.config)
        probabilities = self.model(values)[0, 0]
        scale_x = picture.shape[1] / values.shape[3]
        scale_y = picture.shape[0] / values.shape[2]
        return [
            DetectedBox(detected.box.scaled(scale_x, scale_y), detected.score)
            for detected in boxes_from_probabilities(probabilities, self.config)
        ]
