"""Which providers a program gets for those that it names."""

from __future__ import annotations

import pytest

from shaderloom.as_onnxruntime import policy
from shaderloom.runtime.plan.errors import InputError

CUDA, CPU, DNNL = (f"{name}ExecutionProvider" for name in ("CUDA", "CPU", "Dnnl"))


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        (None, [CPU], ["wgpu", "cpu"]),
        ("", [], ["wgpu", "cpu"]),
        ("cpu", [CUDA, CPU], ["cpu"]),
        ("wgpu", [CPU], ["wgpu"]),
        (" cpu , WebGpuExecutionProvider", [CPU], ["cpu", "wgpu"]),
        ("program", [CPU], ["cpu"]),
        ("program", [DNNL, CUDA], ["cpu", "wgpu"]),
        ("program", ["TensorrtExecutionProvider", CUDA], ["wgpu", "cpu"]),
        ("program", [], ["wgpu", "cpu"]),
    ],
)
def test_the_variable_decides(monkeypatch, text, asked, expected):
    monkeypatch.delenv(policy.VARIABLE, raising=False)
    if text is not None:
        monkeypatch.setenv(policy.VARIABLE, text)
    assert policy.select(asked) == expected


def test_a_wrong_variable_is_an_error(monkeypatch):
    monkeypatch.setenv(policy.VARIABLE, "cuda")
    with pytest.raises(InputError, match="SHADERLOOM_PROVIDERS is 'cuda'"):
        policy.select([CPU])


def test_options_are_those_for_webgpu():
    web = "WebGpuExecutionProvider"
    assert policy.split_options([(CUDA, {"device_id": 3}), CPU], None) == ([CUDA, CPU], {})
    assert policy.split_options([(web, {"device": "x"}), CPU], None) == ([web, CPU], {"device": "x"})
    assert policy.split_options([CUDA, web], [{"device_id": 1}, {"device": 0}]) == ([CUDA, web], {"device": 0})
    assert policy.split_options(None, None) == ([], {})


def test_all_providers_are_those_of_onnxruntime():
    onnxruntime = pytest.importorskip("onnxruntime")
    assert list(policy.ALL_PROVIDERS) == onnxruntime.get_all_providers()


def test_what_was_asked_is_reported_once(capsys, monkeypatch):
    monkeypatch.setattr(policy, "_reported", set())
    for _ in range(2):
        policy.report([CPU], ["wgpu (adapter)", "cpu"])
    policy.report([], ["cpu"])
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"shaderloom: sessions that ask for {CPU} get wgpu (adapter), then cpu [")
    assert "ask for no provider get cpu" in second
