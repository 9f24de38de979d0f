"""Models of transformers as sessions and under ``torch.compile``: three in all tests, the others in a soak.

Covers: shaderloom/torch.
"""

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from ...pytorch_zoo import comparing, example, of_transformers  # import torch

MODELS = [
    pytest.param(name, marks=pytest.mark.slow if name in ("bert", "gpt2", "vit") else pytest.mark.soak)
    for name in of_transformers.SMALL_MODELS
]


@pytest.fixture
def model(request):
    return example.make(of_transformers.SMALL_MODELS[request.param])


@pytest.mark.parametrize("model", MODELS, indirect=True)
def test_a_session_is_equal_to_eager(model, device):
    assert comparing.compare_session(model, device).is_right


@pytest.mark.parametrize("model", MODELS, indirect=True)
def test_a_compiled_model_is_equal_to_eager_and_runs_on_the_device(model, device):
    compared = comparing.compare_compiled(model, device)
    assert compared.is_right
    assert (compared.graphs, compared.on_device, compared.reason) == (1, 1, "")
