"""Models of torchvision: classifiers, a segmentation, and detectors with their selection of boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchvision import models

from .example import Example


def _classifier(name: str) -> Example:
    return Example(getattr(models, name)(weights=None), (torch.rand(2, 3, 224, 224),))


def _segmentation(name: str) -> Example:
    model = getattr(models.segmentation, name)(weights=None, weights_backbone=None)
    return Example(model, (torch.rand(2, 3, 224, 224),))


def _detector(name: str, **settings: Any) -> Example:
    """A detector takes a list of pictures, and resizes and normalises them itself."""
    model = getattr(models.detection, name)(weights=None, weights_backbone=None, **settings)
    return Example(model, ([torch.rand(3, 320, 320), torch.rand(3, 240, 320)],))


MODELS: dict[str, Callable[[], Example]] = {
    "resnet18": lambda: _classifier("resnet18"),
    "mobilenet_v3_large": lambda: _classifier("mobilenet_v3_large"),
    "swin_t": lambda: _classifier("swin_t"),
    "deeplabv3_mobilenet_v3_large": lambda: _segmentation("deeplabv3_mobilenet_v3_large"),
    "fasterrcnn_mobilenet_v3_large_320_fpn": lambda: _detector(
        "fasterrcnn_mobilenet_v3_large_320_fpn", box_score_thresh=0.012
    ),
    "ssdlite320_mobilenet_v3_large": lambda: _detector("ssdlite320_mobilenet_v3_large"),
}
