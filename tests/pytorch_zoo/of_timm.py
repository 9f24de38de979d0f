"""Models of timm, one of each family."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import timm
import torch

from .example import Example
from .names import LIBRARIES


def _model(name: str) -> Example:
    model = timm.create_model(name, pretrained=False)
    return Example(model, (torch.rand(2, *model.default_cfg["input_size"]),))


MODELS: dict[str, Callable[[], Example]] = {name: partial(_model, name) for name in LIBRARIES["timm"]}
