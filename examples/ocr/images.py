"""The pictures that go in and come out: the default picture, reading a file, drawing the result."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from .pipeline import TextLine

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

SAMPLE_SIZE = (640, 320)
LARGE_TEXT = "Shaders read text"
SMALL_TEXT = "every kernel was generated"
CHINESE_TEXT = "图形处理器读懂文字"
ROTATED_TEXT = "upside down on purpose"

# Files of fonts with Chinese characters on Linux, macOS and Windows; Pillow looks for them in the system's folders.
CHINESE_FONTS = (
    "wqy-microhei.ttc",
    "wqy-zenhei.ttc",
    "NotoSansCJK-Regular.ttc",
    "NotoSansSC-Regular.otf",
    "DroidSansFallbackFull.ttf",
    "uming.ttc",
    "PingFang.ttc",
    "Hiragino Sans GB.ttc",
    "STHeiti Light.ttc",
    "msyh.ttc",
    "simhei.ttf",
    "simsun.ttc",
)


def chinese_font(size: int) -> ImageFont.FreeTypeFont | None:
    """A font with Chinese characters, or None if the system has none of those known here. The size is in pixels."""
    for name in CHINESE_FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return None


def sample_lines() -> list[str]:
    """The text of the default picture from top to bottom."""
    return [LARGE_TEXT, CHINESE_TEXT if chinese_font(1) else SMALL_TEXT, ROTATED_TEXT]


def draw_sample() -> NDArray[np.uint8]:
    """The default picture, [320, 640, 3]: two lines of different sizes and a third one upside down.

    The second line is Chinese if the system has a font for it.
    """
    large, small, rotated = sample_lines()
    picture = Image.new("RGB", SAMPLE_SIZE, (246, 244, 238))
    draw = ImageDraw.Draw(picture)
    draw.text((40, 32), large, fill=(28, 30, 38), font=ImageFont.load_default(58))
    small_font = chinese_font(38) if small == CHINESE_TEXT else ImageFont.load_default(34)
    draw.text((42, 134), small, fill=(150, 40, 32), font=small_font)
    label = Image.new("RGB", (SAMPLE_SIZE[0], 70), (32, 58, 92))
    ImageDraw.Draw(label).text((42, 12), rotated, fill=(240, 240, 232), font=ImageFont.load_default(38))
    picture.paste(label.rotate(180), (0, SAMPLE_SIZE[1] - 96))
    return np.asarray(picture)


def load_picture(path: Path) -> NDArray[np.uint8]:
    """An [H, W, 3] RGB array, turned as the camera's orientation tag says."""
    with Image.open(path) as picture:
        return np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))


def annotate(picture: NDArray[np.uint8], lines: Sequence[TextLine]) -> Image.Image:
    """The picture with its boxes, beside it the readings at the height of their boxes."""
    height, width = picture.shape[:2]
    scale = max(1, round(max(height, width) / 640))
    result = Image.new("RGB", (2 * width, height), "white")
    result.paste(Image.fromarray(picture))
    draw = ImageDraw.Draw(result)
    for line in lines:
        corners = line.box.corners()
        outline = (214, 64, 32) if line.upside_down else (24, 132, 72)
        draw.polygon([tuple(corner) for corner in corners.tolist()], outline=outline, width=2 * scale)
        size = max(10, min(round(line.box.height * 0.6), 32 * scale))
        font = _font_for(line.text, size)
        top = max(0.0, min(line.box.y - size, height - 2.2 * size))
        draw.text((width + 12 * scale, top), line.text, fill="black", font=font)
        note = f"{line.score:.3f}" + (", upside down" if line.upside_down else "")
        note_font = ImageFont.load_default(max(10, 12 * scale))
        draw.text((width + 12 * scale, top + 1.25 * size), note, fill=outline, font=note_font)
    return result


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a picture in the format of its suffix, making the folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def _font_for(text: str, size: int) -> Font:
    return (None if text.isascii() else chinese_font(size)) or ImageFont.load_default(size)
