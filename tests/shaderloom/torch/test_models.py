"""Models of transformers as sessions and under ``torch.compile``: three in all tests, the whole zoo in a soak.

Covers: shaderloom/torch.
"""

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from . import zoo  # imports torch

MODELS = [
    pytest.param(name, marks=pytest.mark.slow if name in ("bert", "gpt2", "vit") else pytest.mark.soak)
    for name in zoo.ZOO
]


@pytest.mark.parametrize("name", MODELS)
def test_a_session_is_equal_to_eager(name, device):
    assert zoo.compare_session(name, device).difference <= zoo.TOLERANCE


@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model_is_equal_to_eager_and_runs_on_the_device(name, device):
    compared = zoo.compare_compiled(name, device)
    assert compared.difference <= zoo.TOLERANCE
    assert compared.runs_on == "1 of 1 graphs"
