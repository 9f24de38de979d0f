"""The OCR example in a page: its JavaScript mirrors the Python example, and reads the default picture."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from examples.ocr import components, detect, geometry, images, pipeline, recognise
from examples.ocr.session import to_network_input
from examples.web_ocr.bundles import SHAPES, build_bundles
from examples.web_ocr.site import PAGE, serve
from shaderloom.serve.files import folder_resources
from shaderloom.serve.site import Site

from ..support.models import trained_model
from .chromium import Page
from .conftest import EMPTY, PICTURES

PICTURE = """
globalThis.decode = ({ width, height, data }) =>
  ({ width, height, data: Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0)) });
globalThis.encode = ({ width, height, data }) => {
  let text = "";
  for (const byte of data) text += String.fromCharCode(byte);
  return { width, height, data: btoa(text) };
};
"""


@pytest.fixture(scope="module")
def page(browser) -> Iterator[Page]:
    """A page that may import the example's modules."""
    with Site({**folder_resources(PAGE), **EMPTY}) as site, browser.open(site.url + "empty.html") as opened:
        opened.evaluate(PICTURE)
        yield opened


def encode(picture: np.ndarray) -> dict:
    height, width, _ = picture.shape
    return {"width": width, "height": height, "data": base64.b64encode(picture.tobytes()).decode()}


def decode(result: dict) -> np.ndarray:
    data = np.frombuffer(base64.b64decode(result["data"]), np.uint8)
    return data.reshape(result["height"], result["width"], 3)


def random_picture(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), np.uint8)


def call(page: Page, module: str, expression: str, *values) -> object:
    """``expression`` is a function of the module and the values."""
    return page.call(f"async (...values) => ({expression})(await import('/{module}.js'), ...values)", *values)


@pytest.mark.parametrize("size", [(50, 37), (20, 20), (7, 90), (131, 1), (40, 300)])
def test_pictures_are_resized_as_by_pillow(page, size):
    picture = random_picture(40, 61)
    # Rows first: newer versions of Pillow take columns first where that is less work, and round in between.
    rows = Image.fromarray(picture).resize((size[0], picture.shape[0]), Image.Resampling.BILINEAR)
    expected = rows.resize(size, Image.Resampling.BILINEAR)
    found = call(page, "images", "(m, p, w, h) => encode(m.resize(decode(p), w, h))", encode(picture), *size)
    np.testing.assert_array_equal(decode(found), np.asarray(expected))


@pytest.mark.parametrize("angle", [0.0, 0.3, -0.5, 1.4, 2.2])
def test_crops_are_equal(page, angle):
    picture = random_picture(60, 90)
    box = geometry.RotatedBox(40.3, 28.7, 55.2, 17.6, angle)
    found = decode(
        call(page, "geometry", "(m, p, box) => encode(m.crop(decode(p), box))", encode(picture), asdict(box))
    )
    expected = geometry.crop(picture, box)
    assert found.shape == expected.shape
    # Sines and cosines may differ in the last bit, and so may a rounding.
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1
    assert (found != expected).mean() < 1e-3


def test_boxes_around_points_are_equal(page):
    generator = np.random.default_rng(3)
    for count in (1, 2, 3, 5, 40, 300):
        points = generator.integers(0, 60, (count, 2)) + 0.5
        if count < 3:
            points[:, 1] = 7.5  # a line of pixels
        found = call(page, "geometry", "(m, points) => m.minimumAreaBox(points)", points.tolist())
        expected = asdict(geometry.minimum_area_box(points))
        assert found == pytest.approx(expected, abs=1e-9)


def test_boxes_of_a_map_of_probabilities_are_equal(page):
    """Blurred blobs, so that components touch at corners, are too small, or too doubtful."""
    rough = np.random.default_rng(8).random((24, 40), dtype=np.float32)
    smooth = np.asarray(Image.fromarray(rough).resize((320, 192), Image.Resampling.BICUBIC))
    plane = np.clip((smooth - 0.6) * 5, 0, 1)
    expected = detect.boxes_from_probabilities(plane, detect.DetectionConfig(box_threshold=0.6))
    found = call(
        page, "detect", "(m, values, w, h) => m.boxesFromProbabilities(new Float32Array(values), w, w, h)",
        plane.ravel().tolist(), 320, 192,
    )  # fmt: skip
    assert len(found) == len(expected) > 5
    for mine, other in zip(found, expected, strict=True):
        assert mine["box"] == pytest.approx(asdict(other.box), abs=1e-6)
        assert mine["score"] == pytest.approx(other.score, abs=1e-5)


def test_components_are_equal(page):
    mask = np.random.default_rng(5).random((30, 50)) < 0.35
    expected = [runs.tolist() for runs in components.component_runs(mask)]
    found = call(
        page,
        "components",
        "(m, rows) => m.componentRuns((x, y) => rows[y][x], rows[0].length, rows.length)",
        mask.tolist(),
    )
    assert [[[run["row"], run["start"], run["end"]] for run in runs] for runs in found] == expected


def test_inputs_of_networks_are_equal(page):
    picture = random_picture(40, 64)
    function = "(m, p, ...colours) => Array.from(m.networkInput(decode(p), ...colours, 40, 64).data)"
    found = call(page, "images", function, encode(picture), detect.MEAN, detect.DEVIATION)
    expected = to_network_input(picture, detect.MEAN, detect.DEVIATION)
    np.testing.assert_array_equal(np.array(found, np.float32).reshape(expected.shape), expected)


def test_decoding_is_equal(page):
    probabilities = np.random.default_rng(2).random((30, 6), dtype=np.float32)
    characters = ["", "a", "b", "字", "d", " "]
    expected = recognise.decode(probabilities, characters)
    found = call(
        page, "lines", "(m, values, characters) => m.decode(new Float32Array(values), 30, 6, characters)",
        probabilities.ravel().tolist(), characters,
    )  # fmt: skip
    assert found["text"] == expected.text
    assert found["score"] == pytest.approx(expected.score, abs=1e-6)


def test_characters_are_those_of_the_model(page):
    path = trained_model("ppocr_rec")
    expected = recognise.read_characters(path)
    metadata = onnxruntime.InferenceSession(str(path)).get_modelmeta().custom_metadata_map
    found = call(page, "lines", "(m, map) => m.readCharacters({ model: { custom_metadata_map: map } })", dict(metadata))
    assert found == expected


def test_order_of_reading_is_equal(page):
    generator = np.random.default_rng(11)
    boxes = [
        geometry.RotatedBox(*generator.uniform(0, 300, 2), *generator.uniform(10, 80, 2), generator.uniform(-0.7, 2))
        for _ in range(25)
    ]
    found = call(page, "pipeline", "(m, boxes) => m.inReadingOrder(boxes)", [asdict(box) for box in boxes])
    assert found == pipeline.in_reading_order(boxes)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((640, 320), (640, 320, 640, 320)),
        ((100, 50), (640, 320, 100, 50)),
        ((1280, 640), (640, 320, 640, 320)),
        ((300, 600), (320, 640, 300, 600)),
        ((900, 800), (640, 640, 640, 569)),
    ],
)
def test_pictures_are_fitted_into_the_sizes_of_the_detector(page, size, expected):
    fit = call(
        page, "detect", "(m, w, h, sizes) => m.fitting({ width: w, height: h }, sizes)", *size, SHAPES["detection"]
    )
    assert (fit["networkWidth"], fit["networkHeight"], fit["width"], fit["height"]) == expected


def test_the_page_reads_the_default_picture_as_python_does(browser, tmp_path):
    paths = pipeline.ModelPaths(*(trained_model(name) for name in ("ppocr_det", "ppocr_cls", "ppocr_rec")))
    shapes = {
        "detection": [(1, 3, 320, 640)],
        "angle": SHAPES["angle"],
        "recognition": [(1, 3, 48, 480), (1, 3, 48, 640)],
    }
    bundles = build_bundles(tmp_path, shapes)
    reference = pipeline.OcrPipeline(
        lambda path: onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]), paths
    )(images.draw_sample())
    with serve(bundles) as site, browser.open(site.url) as page:
        page.wait_for("!document.getElementById('again').disabled")
        assert page.evaluate("document.getElementById('status').textContent").startswith("Read 3 lines")
        texts = page.evaluate("[...document.querySelectorAll('#lines .text')].map((line) => line.textContent)")
        notes = page.evaluate("[...document.querySelectorAll('#lines .note')].map((line) => line.textContent)")
        assert texts == [line.text for line in reference] == images.sample_lines()
        for note, line in zip(notes, reference, strict=True):
            assert float(note.split()[1].rstrip(",")) == pytest.approx(line.score, abs=2e-3)
            assert note.endswith("upside down") == line.upside_down
        picture = Image.open(page.screenshot(PICTURES / "ocr.png"))
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 50
        assert {request.split("/")[2] for request in page.requests if not request.startswith("data:")} == {
            page.evaluate("location.host")
        }
        assert page.messages == []
        page.resize(360, 740, mobile=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        # Compiled bundles are kept while nothing changes.
        before = bundles["angle"].stat().st_mtime_ns
        assert build_bundles(tmp_path, shapes)["angle"].stat().st_mtime_ns == before
