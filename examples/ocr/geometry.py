"""Rotated rectangles around point sets, and crops along them.

Coordinates are continuous picture coordinates: x to the right, y down, pixel (column, row) covers
[column, column + 1) x [row, row + 1). Point arrays have shape [points, 2] with (x, y) rows.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


@dataclass(frozen=True)
class RotatedBox:
    """A rectangle whose width runs in reading direction, ``angle`` radians clockwise on the screen from +x.

    The angle lies in [-pi/4, 3*pi/4): text runs to the right, or downwards where the box is upright.
    """

    x: float
    y: float
    width: float
    height: float
    angle: float

    def corners(self) -> Points:
        """Shape [4, 2]: top left, top right, bottom right, bottom left as seen by the reader."""
        along = np.array([math.cos(self.angle), math.sin(self.angle)]) * (self.width / 2)
        down = np.array([-math.sin(self.angle), math.cos(self.angle)]) * (self.height / 2)
        centre = np.array([self.x, self.y])
        return np.stack([centre - along - down, centre + along - down, centre + along + down, centre - along + down])

    def expanded(self, distance: float) -> "RotatedBox":
        """The same box with every side moved outwards by a distance."""
        return replace(self, width=self.width + 2 * distance, height=self.height + 2 * distance)

    def scaled(self, scale_x: float, scale_y: float) -> "RotatedBox":
        """The box around this one in a picture that is stretched; unequal scales shear a rotated rectangle."""
        return minimum_area_box(self.corners() * (scale_x, scale_y))


def convex_hull(points: Points) -> Points:
    """The corners of the convex hull, without collinear points (Andrew's monotone chain)."""
    ordered = sorted({(float(x), float(y)) for x, y in points})
    if len(ordered) <= 2:
        return np.array(ordered)

    def half(sequence: list[tuple[float, float]]) -> list[tuple[float, float]]:
        chain: list[tuple[float, float]] = []
        for x, y in sequence:
            while len(chain) >= 2:
                (ax, ay), (bx, by) = chain[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                chain.pop()
            chain.append((x, y))
        return chain[:-1]

    return np.array(half(ordered) + half(ordered[::-1]))


def minimum_area_box(points: Points) -> RotatedBox:
    """The rectangle of least area around the points; one of its sides lies on a side of their convex hull.

    The reading direction is the longer side; of a nearly square box (ratio under 1.5) it is the side closer to
    horizontal, as single characters are rarely written on their side.
    """
    hull = convex_hull(points)
    edges = np.roll(hull, -1, axis=0) - hull
    angles = np.unique(np.arctan2(edges[:, 1], edges[:, 0]) % (math.pi / 2))
    cosines, sines = np.cos(angles), np.sin(angles)
    along = np.outer(cosines, hull[:, 0]) + np.outer(sines, hull[:, 1])  # [angles, points]
    across = np.outer(cosines, hull[:, 1]) - np.outer(sines, hull[:, 0])
    widths, heights = np.ptp(along, axis=1), np.ptp(across, axis=1)
    best = int(np.argmin(widths * heights))
    middle_along = (along[best].min() + along[best].max()) / 2
    middle_across = (across[best].min() + across[best].max()) / 2
    x = middle_along * cosines[best] - middle_across * sines[best]
    y = middle_along * sines[best] + middle_across * cosines[best]
    return _in_reading_direction(x, y, float(widths[best]), float(heights[best]), float(angles[best]))


def _in_reading_direction(x: float, y: float, width: float, height: float, angle: float) -> RotatedBox:
    nearly_square = max(width, height) < 1.5 * min(width, height)
    # The angle comes in [0, pi/2), so its cosine and sine compare how close the two sides are to horizontal.
    swap = math.sin(angle) > math.cos(angle) if nearly_square else height > width
    if swap:
        width, height, angle = height, width, angle + math.pi / 2
    return RotatedBox(float(x), float(y), width, height, (angle + math.pi / 4) % math.pi - math.pi / 4)


def inside_box(box: RotatedBox, columns: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the centres of pixels lie in the box; the result has the broadcast shape of columns and rows."""
    delta_x, delta_y = columns + 0.5 - box.x, rows + 0.5 - box.y
    cosine, sine = math.cos(box.angle), math.sin(box.angle)
    along = np.abs(delta_x * cosine + delta_y * sine)
    across = np.abs(delta_y * cosine - delta_x * sine)
    return (along <= box.width / 2) & (across <= box.height / 2)


def crop(picture: NDArray[np.uint8], box: RotatedBox) -> NDArray[np.uint8]:
    """The content of the box, upright for its reader, sampled bilinearly at about one pixel a pixel.

    ``picture`` is [H, W, C]; the result is [round(box.height), round(box.width), C], at least one pixel. Outside the
    picture its border pixels repeat.
    """
    height, width = picture.shape[:2]
    target_height, target_width = max(1, round(box.height)), max(1, round(box.width))
    along = ((np.arange(target_width) + 0.5) / target_width - 0.5) * box.width
    down = ((np.arange(target_height) + 0.5) / target_height - 0.5) * box.height
    cosine, sine = math.cos(box.angle), math.sin(box.angle)
    x = np.clip(box.x + along[None, :] * cosine - down[:, None] * sine - 0.5, 0, width - 1)
    y = np.clip(box.y + along[None, :] * sine + down[:, None] * cosine - 0.5, 0, height - 1)
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    fraction_x, fraction_y = (x - left)[..., None], (y - top)[..., None]
    upper = picture[top, left] * (1 - fraction_x) + picture[top, right] * fraction_x
    lower = picture[bottom, left] * (1 - fraction_x) + picture[bottom, right] * fraction_x
    return np.rint(upper * (1 - fraction_y) + lower * fraction_y).astype(np.uint8)
