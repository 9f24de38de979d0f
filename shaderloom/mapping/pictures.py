"""Pictures as inputs: decoded, scaled to cover a size, cropped in the middle, and normalised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.plan.errors import InputError, UnsupportedError
from ..runtime.plan.record import record
from .columns import RowInput

#: Files of a folder that are pictures
SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@record(slots=False)
class PictureForm:
    """Width and height in pixels, and the mean and deviation of each channel of floats from 0 to 1."""

    width: int
    height: int
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    deviation: tuple[float, ...] = (1.0, 1.0, 1.0)

    @property
    def is_scaled(self) -> bool:
        """Whether a mean or a deviation was stated."""
        return any(self.mean) or self.deviation != (1.0, 1.0, 1.0)

    def array(self, file: Any, port: RowInput, source: str) -> np.ndarray:
        """Return the picture of a path or an open file as an input of one row, of the layout that its sizes show."""
        picture = _pixels(file, source, self.width, self.height)
        channels_last = len(port.sizes) == 3 and port.sizes[-1] in (1, 3) and port.sizes[0] not in (1, 3)
        count = port.sizes[-1 if channels_last else 0] if len(port.sizes) == 3 else None
        if count == 1:
            picture = np.rint(picture @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)[..., np.newaxis]
        if port.dtype != np.uint8:
            mean, deviation = (
                np.asarray(each, np.float32)[: picture.shape[-1]] for each in (self.mean, self.deviation)
            )
            picture = ((picture.astype(np.float32) / 255 - mean) / deviation).astype(port.dtype)
        row = picture if channels_last else np.moveaxis(picture, -1, 0)
        return port.array(np.ascontiguousarray(row), source)


def parse_form(size: str, mean: str | None, deviation: str | None) -> PictureForm:
    """Return the form of ``--image``, ``--mean`` and ``--std``; raise :class:`InputError` for other texts."""
    width, cross, height = size.partition("x")
    if not (cross and all(side.isdecimal() and 0 < int(side) <= 16384 for side in (width, height))):
        raise InputError(f"--image wants WIDTHxHEIGHT, not '{size}'", hint="write it like 224x224")
    means, deviations = _channels("--mean", mean, 0.0), _channels("--std", deviation, 1.0)
    if 0.0 in deviations:
        raise InputError("--std has a channel of 0", hint="it divides")
    return PictureForm(int(width), int(height), means, deviations)


def _channels(option: str, text: str | None, default: float) -> tuple[float, ...]:
    if text is None:
        return (default,) * 3
    try:
        numbers: Sequence[float] = [float(each) for each in text.split(",")]
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 3) or not np.isfinite(numbers).all():
        raise InputError(f"{option} wants a number for each channel, not '{text}'", hint="write it like 0.5,0.5,0.5")
    return tuple(numbers) * (3 // len(numbers))


def list_pictures(folder: Path) -> list[Path]:
    """Return the pictures of a folder and of those in it, in order of their paths."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def _pixels(file: Any, source: str, width: int, height: int) -> np.ndarray:
    """Return uint8 [height, width, 3]."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise UnsupportedError("pictures need pillow", hint="pip install 'shaderloom[data]'") from error
    try:
        with Image.open(file) as picture:
            upright = ImageOps.exif_transpose(picture)
            if upright.mode.startswith("I;16"):  # which pillow would clip at 255
                upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
            elif upright.mode in ("I", "F"):
                raise ValueError("its pixels are 32-bit numbers, of which the range is not known")
            return np.asarray(ImageOps.fit(upright.convert("RGB"), (width, height), Image.Resampling.BILINEAR))
    except Exception as error:  # decoders raise what comes to them: struct.error, IndexError, EOFError
        raise InputError(f"'{source}' is no picture that can be read: {error}", hint="leave it out") from None
