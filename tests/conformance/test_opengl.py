"""Every operator's cases and whole models on wgpu's OpenGL adapter, whose shaders naga translates to GLSL."""

from __future__ import annotations

import pytest

from ..support.cases import OperatorCase, all_cases, assert_case, skip_if_host_only
from ..support.models import ModelUnavailableError
from ..support.running import run_model
from .expected import unexpected
from .models import RealModel, measure, real_models

pytestmark = pytest.mark.soak

CASES = all_cases()
MODELS = [model for model in real_models() if not model.large]


@pytest.mark.parametrize("operator", CASES, ids=lambda operator: operator.name)
def test_operator(operator: OperatorCase, opengl_device) -> None:
    skip_if_host_only(operator)
    assert_case(operator, run_model(opengl_device, operator.model(), operator.feeds))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_model(model: RealModel, opengl_device) -> None:
    try:
        outcome, _ = measure(model, opengl_device)
    except ModelUnavailableError as error:
        pytest.skip(f"model {model.name}: {error}")
    text = unexpected(outcome, opengl_device.name)
    assert text is None, text
