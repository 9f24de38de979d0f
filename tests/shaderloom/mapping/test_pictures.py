"""Pictures as rows: which way up they are, what their numbers mean, and files that are none.

Covers: shaderloom/mapping/pictures, shaderloom/mapping/sources.
"""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from shaderloom.mapping.columns import RowInput
from shaderloom.mapping.opening import open_source
from shaderloom.mapping.pictures import PictureForm
from shaderloom.mapping.sources import ArraySource, PictureSource
from shaderloom.runtime.plan.errors import InputError

PORT = RowInput("x", np.dtype(np.uint8), (3, 4, 4))
FORM = PictureForm(4, 4)


def test_a_picture_is_turned_upright(tmp_path):
    picture = Image.new("RGB", (8, 8), (255, 0, 0))
    picture.paste((0, 0, 255), (0, 0, 8, 4))  # its upper half
    exif = picture.getexif()
    exif[0x0112] = 6  # to be turned clockwise: what is above comes to the right
    picture.save(tmp_path / "a.png", exif=exif)
    (row,) = FORM.array(tmp_path / "a.png", PORT, "a.png")
    assert row[2, :, 3].tolist() == [255] * 4 and row[0, :, 0].tolist() == [255] * 4
    assert not row[0, :, 3].any() and not row[2, :, 0].any()


def test_bytes_have_no_mean(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for form in (PictureForm(4, 4, (0.5,) * 3), PictureForm(4, 4, deviation=(0.5,) * 3)):
        with pytest.raises(InputError, match="takes bytes"):
            open_source(tmp_path, {"x": PORT}, {}, (), form)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_greys_of_16_bits_are_scaled(suffix, tmp_path):
    levels = np.repeat(np.array([[0x0100, 0x4000, 0x8000, 0xFFFF]], np.uint16), 4, 0)
    Image.fromarray(levels).save(tmp_path / f"a.{suffix}")
    (row,) = FORM.array(tmp_path / f"a.{suffix}", PORT, "a")
    assert row[:, 0].tolist() == [[1, 64, 128, 255]] * 3


def test_numbers_without_a_range_are_no_picture(tmp_path):
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(InputError, match="32-bit numbers"):
        FORM.array(tmp_path / "a.tif", PORT, "a.tif")


@pytest.mark.parametrize("suffix", ["png", "gif", "tif", "bmp", "webp", "jpg", "ppm"])
def test_any_bytes_are_a_picture_or_an_error_of_their_row(suffix, tmp_path):
    random = np.random.default_rng(7)
    Image.fromarray(random.integers(0, 256, (16, 24, 3), np.uint8)).save(tmp_path / f"whole.{suffix}")
    data = (tmp_path / f"whole.{suffix}").read_bytes()
    for number in range(30):
        broken = bytearray(data[: random.integers(0, len(data) + 1)])
        for place in random.integers(0, min(len(broken), 200), 3) if broken else ():
            broken[place] = random.integers(256)
        (tmp_path / f"{number}.{suffix}").write_bytes(broken)
    rows = list(PictureSource(tmp_path, {"x": PORT}, FORM).rows(0, 31))
    assert len(rows) == 31 and rows[-1][0]["file"].endswith(f"whole.{suffix}")
    assert not isinstance(rows[-1][1], InputError) and any(isinstance(feeds, InputError) for _, feeds in rows)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_an_empty_file_has_no_arrays(name, tmp_path):
    (tmp_path / name).touch()
    with pytest.raises(InputError, match="cannot be read"):
        ArraySource(tmp_path / name, {"x": PORT}, {})
