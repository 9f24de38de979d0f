"""The OCR example end to end on onnxruntime: its pre- and post-processing read text, whatever runs the models."""

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from examples.ocr.images import annotate, chinese_font, draw_sample, load_picture, sample_lines
from examples.ocr.pipeline import ModelPaths, OcrPipeline
from examples.ocr.report import model_table
from tests.support.effort import slow
from tests.support.models import trained_model


@pytest.fixture(scope="module")
def pipeline():
    paths = ModelPaths(*(trained_model(name) for name in ("ppocr_det", "ppocr_cls", "ppocr_rec")))
    return OcrPipeline(lambda path: onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]), paths)


def test_the_default_picture_is_read_in_full(pipeline):
    lines = pipeline(draw_sample())
    assert [line.text for line in lines] == sample_lines()
    assert [line.upside_down for line in lines] == [False, False, True]
    assert min(line.score for line in lines) > 0.9


def test_chinese_is_read(pipeline):
    if chinese_font(1) is None:
        pytest.skip("no font with Chinese characters is installed")
    assert "图形处理器读懂文字" in [line.text for line in pipeline(draw_sample())]


@pytest.mark.parametrize("degrees", [180, -30, *slow([270, 10])])
def test_a_turned_picture_has_the_same_text(pipeline, degrees):
    turned = Image.fromarray(draw_sample()).rotate(
        degrees, expand=True, resample=Image.Resampling.BICUBIC, fillcolor=(246, 244, 238)
    )
    lines = pipeline(np.asarray(turned))
    # A slanted line may lose a space; its characters stay.
    found = {line.text.replace(" ", "") for line in lines}
    assert found == {text.replace(" ", "") for text in sample_lines()}


def test_a_blank_picture_has_no_text(pipeline):
    assert pipeline(np.full((100, 200, 3), 255, np.uint8)) == []


def test_the_result_can_be_drawn_and_tabled(pipeline, tmp_path):
    picture = draw_sample()
    annotated = annotate(picture, pipeline(picture))
    annotated.save(tmp_path / "annotated.png")
    written = load_picture(tmp_path / "annotated.png")
    assert written.shape == (320, 1280, 3)
    assert (written[:, :640] != picture).any()
    assert [column.header for column in model_table(pipeline.models).columns] == [
        "",
        "detection",
        "angle",
        "recognition",
    ]
