"""Modules as sessions, compared with the modules themselves.

Covers: shaderloom/torch/from_torch.py, shaderloom/torch/session.py, shaderloom/torch/export.py,
shaderloom/torch/call_layout.py, shaderloom/torch/tensors.py.
"""

import tempfile

import numpy as np
import pytest

import shaderloom
from shaderloom import InputError, UnsupportedError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from shaderloom.torch import session as torch_session  # noqa: E402  # imports torch

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:the only adapter is")]


class Structured(torch.nn.Module):
    """Takes and gives nested structures with values that are no tensors."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x, *, scale=2.0, extra=None, repeats=4):
        y = self.conv(x).relu().mean((2, 3))
        return {
            "scaled": y * scale + extra["bias"],
            "twice": (y, y),
            "input": x,
            "constant": torch.arange(3),
            "flat": x.view(-1) * repeats,
            "size": x.shape[0] * 2,
            "nothing": None,
        }


def structured_call(batch):
    torch.manual_seed(batch)
    return (torch.randn(batch, 3, 9, 9),), {"scale": 3.0, "extra": {"bias": torch.randn(4)}, "repeats": 5}


@pytest.fixture(scope="module")
def structured():
    torch.manual_seed(0)
    return Structured().eval()


@pytest.fixture(scope="module")
def session(device, structured):
    args, kwargs = structured_call(2)
    dims = {"x": {0: torch.export.Dim("batch", min=1, max=16)}, "repeats": torch.export.Dim.DYNAMIC}
    with shaderloom.from_torch(structured, args, kwargs, dynamic_shapes=dims, device=device, cache=False) as opened:
        yield opened


@pytest.mark.parametrize("batch", [2, 5, 1])
def test_a_session_is_called_as_its_module(session, structured, batch):
    args, kwargs = structured_call(batch)
    kwargs["repeats"] = 4 + batch
    with torch.no_grad():
        expected = structured(*args, **kwargs)
    results = session(*args, **kwargs)
    assert results["size"] == 2 * batch
    assert results["input"] is args[0]
    torch.testing.assert_close(results, expected)


def test_inputs_and_dimensions_have_the_names_of_the_call(session):
    assert [(port.name, port.shape) for port in session.get_inputs()] == [
        ("x", ["batch", 3, 9, 9]),
        ("extra_bias", [4]),
        ("repeats", []),
    ]
    args, kwargs = structured_call(17)
    with pytest.raises(InputError, match="'batch', is 17; it was declared dynamic from 1 to 16"):
        session(*args, **kwargs)


def test_a_call_that_differs_from_the_example_is_refused(session):
    args, kwargs = structured_call(2)
    with pytest.raises(InputError, match="another structure"):
        session(*args)
    with pytest.raises(InputError, match=r"an argument is 2\.5 that was 3\.0"):
        session(*args, **{**kwargs, "scale": 2.5})
    with pytest.raises(InputError, match="do not fit the module"):
        session(*args, unknown=1, **kwargs)
    with pytest.raises(
        InputError, match=r"has dtype float64, expected float32 \[convert it with \.to\(torch\.float32\)"
    ):
        session(args[0].double(), **kwargs)


def test_gradients_are_refused_where_they_would_be_computed(session):
    args, kwargs = structured_call(2)
    tracked = args[0].clone().requires_grad_()
    with pytest.raises(InputError, match="requires a gradient"):
        session(tracked, **kwargs)
    with torch.no_grad():
        torch.testing.assert_close(session(tracked, **kwargs)["scaled"], session(*args, **kwargs)["scaled"])


def test_runs_by_name_give_pytorch_tensors(session):
    args, kwargs = structured_call(3)
    feeds = {"x": args[0], "extra_bias": kwargs["extra"]["bias"].numpy(), "repeats": 5}
    names = [port.name for port in session.get_outputs()][:2]
    for results in (session.run(names, feeds), session.run_async(names, feeds).result()):
        assert all(isinstance(result, torch.Tensor) for result in results)
        torch.testing.assert_close(results[0], session(*args, **kwargs)["scaled"])


def test_outputs_that_stay_on_the_device_are_fed_back(device):
    step = torch.nn.Linear(4, 4).eval()
    x = torch.randn(2, 4)
    options = {"preferred_output_location": "gpu-buffer", "device": device, "cache": False}
    with shaderloom.from_torch(step, (x,), **options) as session, torch.no_grad():
        once = session(x)
        assert isinstance(once, shaderloom.Tensor)
        np.testing.assert_allclose(session(once).numpy(), step(step(x)).numpy(), rtol=1e-5, atol=1e-6)


def test_the_only_argument_needs_no_tuple(device):
    x = torch.randn(2, 3)
    with shaderloom.from_torch(torch.nn.ReLU().eval(), x, device=device, cache=False) as session:
        torch.testing.assert_close(session(x), x.relu())


def test_bfloat16_goes_in_and_out(device):
    module = torch.nn.Linear(4, 4).eval().to(torch.bfloat16)
    x = torch.randn(3, 4).to(torch.bfloat16)
    with shaderloom.from_torch(module, (x,), device=device, cache=False) as session, torch.no_grad():
        result = session(x)
        assert result.dtype == torch.bfloat16
        torch.testing.assert_close(result, module(x))


def test_a_program_of_the_exporter_is_a_model(device):
    module, x = torch.nn.Linear(4, 3).eval(), torch.randn(2, 4)
    program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    with shaderloom.InferenceSession(program, device=device, cache=False) as session, torch.no_grad():
        (result,) = session.run(None, {session.get_inputs()[0].name: x})
        assert isinstance(result, np.ndarray)
        np.testing.assert_allclose(result, module(x).numpy(), rtol=1e-5, atol=1e-6)


def test_a_large_module_goes_through_a_file_of_its_session(device, monkeypatch, tmp_path):
    monkeypatch.setattr(torch_session, "LARGEST_MESSAGE", 16)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    module, x = torch.nn.Linear(64, 64).eval(), torch.randn(2, 64)
    session = shaderloom.from_torch(module, (x,), device=device, cache=False)
    assert {path.suffix for path in tmp_path.glob("shaderloom-*/*")} == {".onnx", ".data"}
    with torch.no_grad():
        torch.testing.assert_close(session(x), module(x))
    session.close()
    del session
    assert list(tmp_path.glob("shaderloom-*")) == []


class Branching(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_what_cannot_be_a_session_says_why(device):
    x = torch.randn(3)
    with pytest.raises(InputError, match="training mode"):
        shaderloom.from_torch(torch.nn.Linear(3, 3), (x,))
    with pytest.raises(InputError, match=r"a torch\.nn\.Module is needed, not function"):
        shaderloom.from_torch(lambda x: x, (x,))
    with pytest.raises(UnsupportedError, match="PyTorch cannot export the module"):
        shaderloom.from_torch(Branching().eval(), (x,))
    with pytest.raises(UnsupportedError, match="the module writes to 'calls'"):
        shaderloom.from_torch(Counting().eval(), (x,))
    with pytest.raises(UnsupportedError, match="is a object, neither a tensor nor plain"):
        shaderloom.from_torch(torch.nn.Identity().eval(), (object(),))
    with pytest.raises(InputError, match="dynamic_shapes names 'y'"):
        shaderloom.from_torch(Branching().eval(), (x,), dynamic_shapes={"y": None})
