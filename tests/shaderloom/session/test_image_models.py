"""Models of images and text lines, and a BERT, on the device against onnxruntime: all nodes on wgpu.

Covers: shaderloom/session, compiler/driver.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import shaderloom

from ...support.comparison import assert_model_close
from ...support.effort import quick_first
from ...support.inputs import photograph, text_line, text_picture, tokens
from ...support.models import filled_model, trained_model
from ...support.sessions import Feeds, assert_all_on_device, check_on_device, run_session

TRAINED: dict[str, tuple[str, Callable[[], Feeds]]] = {
    "ppocr_det at 640x640": ("ppocr_det", lambda: {"x": text_picture(640, 640)}),
    "ppocr_det at 320x480": ("ppocr_det", lambda: {"x": text_picture(320, 480)}),
    "ppocr_rec at width 320": ("ppocr_rec", lambda: {"x": text_line(320)}),
    "ppocr_rec at width 480": ("ppocr_rec", lambda: {"x": text_line(480)}),
    "ppocr_cls": ("ppocr_cls", lambda: {"x": text_line(192)}),
    "ddddocr_det": ("ddddocr_det", lambda: {"images": text_picture(416, 416)}),
}

#: model -> most calls of a run
FILLED_CALLS = {
    "squeezenet1_1": 45,
    "mobilenet_v2": 60,
    "resnet18": 60,
    "resnet50": 60,
    "efficientnet_b0": 120,
    "vit_tiny_patch16_224": 120,
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TRAINED)
def test_trained_model(case: str, device) -> None:
    name, make_feeds = TRAINED[case]
    check_on_device(trained_model(name), make_feeds(), device)


@pytest.mark.parametrize("name", quick_first(FILLED_CALLS))
def test_image_model(name: str, device) -> None:
    path, feeds = filled_model(name), {"input": photograph(224)}
    results, report = run_session(path, feeds, device)
    assert_all_on_device(report)
    transforms = sum("Winograd" in call["label"] for call in report["call_list"])
    assert report["calls"] - transforms <= FILLED_CALLS[name]
    assert_model_close(results, path, feeds)


def bert_feeds(batch: int, length: int) -> Feeds:
    mask = np.ones((batch, length), np.int64)
    mask[:, length - length // 4 :] = 0
    return {"input_ids": tokens(batch, length, 1000), "attention_mask": mask}


@pytest.mark.parametrize("declared", [False, True], ids=["static", "declared dims"])
def test_bert_of_three_lengths(declared: bool, device) -> None:
    path = filled_model("bert_small_dynamic")
    dynamic = {"batch": (1, 8), "sequence": (1, 512)} if declared else None
    with shaderloom.InferenceSession(path, device=device, cache=False, dynamic=dynamic) as session:
        for batch, length in ((1, 17), (2, 64), (1, 128)):
            feeds = bert_feeds(batch, length)
            assert_model_close(session.run(None, feeds), path, feeds)
        assert_all_on_device(session.report())
        assert (session.stats.misses, session.stats.hits) == ((1, 2) if declared else (3, 0))
