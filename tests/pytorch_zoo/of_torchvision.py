"""Models of torchvision: classifiers, a segmentation, and detectors with their selection of boxes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torchvision import models

from .example import Example

#: What the weights of a detector's scores are multiplied with: random ones give all classes nearly the same score
GAIN = 20.0


def _classifier(name: str) -> Example:
    return Example(getattr(models, name)(weights=None), (torch.rand(2, 3, 224, 224),))


def _segmentation(name: str) -> Example:
    model = getattr(models.segmentation, name)(weights=None, weights_backbone=None)
    return Example(model, (torch.rand(2, 3, 224, 224),))


def _detector(name: str) -> Example:
    """A detector takes a list of pictures, and resizes and normalises them itself."""
    model = getattr(models.detection, name)(weights=None, weights_backbone=None)
    return Example(model, ([torch.rand(3, 320, 320), torch.rand(3, 240, 320)],))


def _detector_of_two_stages(name: str) -> Example:
    """A detector that scores the classes of the boxes that its first stage proposes."""
    example = _detector(name)
    with torch.no_grad():
        example.model.roi_heads.box_predictor.cls_score.weight.mul_(GAIN)
    return example


MODELS: dict[str, Callable[[], Example]] = {
    "resnet18": lambda: _classifier("resnet18"),
    "mobilenet_v3_large": lambda: _classifier("mobilenet_v3_large"),
    "swin_t": lambda: _classifier("swin_t"),
    "deeplabv3_mobilenet_v3_large": lambda: _segmentation("deeplabv3_mobilenet_v3_large"),
    "fasterrcnn_mobilenet_v3_large_320_fpn": lambda: _detector_of_two_stages("fasterrcnn_mobilenet_v3_large_320_fpn"),
    "ssdlite320_mobilenet_v3_large": lambda: _detector("ssdlite320_mobilenet_v3_large"),
}
