"""Provider lists: what is dropped and why, what is left, and the cpu provider where there is no device.

Covers: shaderloom/api/providers, shaderloom/cpu.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import shaderloom
from shaderloom import notices
from shaderloom.api.providers import initialise_providers, parse_providers
from shaderloom.runtime.device.adapters import AdapterDescription, choose_adapter
from shaderloom.runtime.plan.errors import DeviceError, InputError, UnsupportedError

from ...support.patience import PATIENCE

pytestmark = pytest.mark.usefixtures("fresh_notices")

ADD = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n] x, float[1] b) => (float[n] y) <float[1] b = {1}> { y = Add(x, b) }"""
DOUBLE = """<ir_version: 8, opset_import: ["" : 17]> g (double[n] x) => (double[n] y) { y = Add(x, x) }"""
TEXT = """<ir_version: 8, opset_import: ["" : 20]>
g (string[n] x, string[n] z) => (string[n] y) { y = StringConcat(x, z) }"""


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def test_names_and_aliases():
    assert parse_providers(None) == parse_providers([]) == [("wgpu", {})]
    assert parse_providers(["JsExecutionProvider", "CPUExecutionProvider", "wgpu", "webgpu"]) == [
        ("wgpu", {}),
        ("cpu", {}),
    ]
    assert parse_providers(
        [("wgpu", {"device": "a"}), "WebGpuExecutionProvider"], [{"power_preference": "low-power"}, {}]
    ) == [("wgpu", {"power_preference": "low-power", "device": "a"})]
    for wrong, reason in (
        ("wgpu", "list of names"),
        (["tpu"], "no provider 'tpu'"),
    ):
        with pytest.raises(InputError, match=reason):
            parse_providers(wrong)
    with pytest.raises(InputError, match="1 provider options for 2"):
        parse_providers(["wgpu", "cpu"], [{}])


def test_providers_of_onnxruntime_alone():
    with pytest.warns(UserWarning, match="provider 'CUDAExecutionProvider' is dropped: it is onnxruntime's alone"):
        found = parse_providers([("CUDAExecutionProvider", {"device_id": 1}), "CPUExecutionProvider"])
    assert found == [("cpu", {})]
    with pytest.raises(InputError, match="no provider 'CUDAExecutionProvider'"):
        parse_providers(["CUDAExecutionProvider"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_providers(["CUDAExecutionProvider", "wgpu"], severity=3) == [("wgpu", {})]


def test_the_cpu_by_our_name_needs_no_advice():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for wanted in (["cpu"], [("cpu", {})], ["CPUExecutionProvider", ("cpu", {})]):
            assert parse_providers(wanted) == [("cpu", {})]
    for wanted in (["CPUExecutionProvider"], [("CPUExecutionProvider", {})]):
        notices.forget()
        with pytest.warns(UserWarning, match="runs on the cpu; with 'wgpu' in the list the model runs on the device"):
            assert parse_providers(wanted) == [("cpu", {})]


def test_every_reason_is_listed():
    def fail(kind, reason):
        def maker(options):
            raise kind(reason, hint="so mend it")

        return maker

    makers = {"wgpu": fail(DeviceError, "no adapter"), "cpu": fail(UnsupportedError, "nothing installed")}
    both = [("wgpu", {}), ("cpu", {})]
    reasons = r"'wgpu': device: no adapter \[so mend it\]; 'cpu': support: nothing installed \[so mend it\]"
    with pytest.raises(DeviceError, match=reasons):
        initialise_providers(both, makers)
    with pytest.raises(UnsupportedError, match="nothing installed"):
        initialise_providers(both[1:], makers)
    with pytest.warns(UserWarning, match="provider 'wgpu' is dropped: device: no adapter"):
        assert initialise_providers(both, {**makers, "cpu": lambda options: None}) == ("cpu",)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert initialise_providers(both, {**makers, "cpu": lambda options: None}, severity=3) == ("cpu",)


def test_the_list_is_what_really_resolved(device):
    for wanted, expected in (
        (["WebGpuExecutionProvider"], ["wgpu"]),
        (["wgpu", "CPUExecutionProvider", "wgpu"], ["wgpu", "cpu"]),
        (["cpu"], ["cpu"]),
    ):
        with shaderloom.InferenceSession(parse(ADD), providers=wanted, device=device, cache=False) as session:
            assert session.get_providers() == expected
            (result,) = session.run(None, {"x": np.arange(3, dtype=np.float32)})
            np.testing.assert_array_equal(result, [1, 2, 3])


PROGRAM = """
    import json, sys, warnings
    import numpy as np, onnx.parser
    blocked = {blocked!r}
    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name in blocked:
                raise ImportError(name)
    sys.meta_path.insert(0, Refuse())
    import shaderloom
    model = onnx.parser.parse_model({model!r})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            session = shaderloom.InferenceSession(model, providers={providers!r})
            x, b = np.arange(3, dtype=np.float32), np.array([5], np.float32)
            result = session.run(None, {{"x": x}})[0].tolist()
            feed = session.run(None, {{"x": x, "b": b}})[0].tolist()
            report = dict(providers=session.get_providers(), result=result, feed=feed,
                          implementation=session._cpu.implementation, shape=session.get_inputs()[0].shape)
        except shaderloom.ShaderloomError as error:
            report = dict(error=str(error), kind=type(error).__name__)
    report["warnings"] = [str(item.message) for item in caught]
    report["available"] = shaderloom.get_available_providers()
    report["device"] = shaderloom.get_device()
    print(json.dumps(report))
"""


def run_without_driver(providers, blocked=()) -> dict:
    """What a process in which no driver for Vulkan or OpenGL is installed reports."""
    environment = {
        **os.environ,
        "VK_DRIVER_FILES": "/nonexistent/driver.json",
        "VK_ICD_FILENAMES": "/nonexistent/driver.json",
        "__EGL_VENDOR_LIBRARY_FILENAMES": "/nonexistent/driver.json",
    }
    program = textwrap.dedent(PROGRAM).format(model=ADD, providers=providers, blocked=tuple(blocked))
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PATIENCE, env=environment
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize(("blocked", "implementation"), [((), "onnxruntime"), (("onnxruntime",), "onnx.reference")])
def test_without_a_driver_the_model_runs_on_the_cpu(blocked, implementation):
    if implementation == "onnxruntime":
        pytest.importorskip("onnxruntime")
    report = run_without_driver(["wgpu", "cpu"], blocked)
    assert report["providers"] == ["cpu"]
    assert report["implementation"] == implementation
    assert report["result"] == [1, 2, 3]
    assert report["feed"] == [5, 6, 7]
    assert report["shape"] == ["n"]
    assert any("provider 'wgpu' is dropped" in text and "mesa-vulkan-drivers" in text for text in report["warnings"])
    assert (report["available"], report["device"]) == (["cpu"], "CPU")


def test_without_a_driver_wgpu_alone_is_an_error():
    report = run_without_driver(["wgpu"])
    assert report["kind"] == "DeviceError"
    assert "mesa-vulkan-drivers" in report["error"]


@pytest.mark.parametrize("with_onnxruntime", [True, False])
def test_types_of_the_host_run_on_the_cpu(device, monkeypatch, with_onnxruntime):
    if not with_onnxruntime:
        monkeypatch.setattr("shaderloom.api.providers.cpu_packages", lambda: ["onnx"])
    x = np.array([0.1, 1e300], np.float64)
    options = {"device": device, "cache": False}
    session = shaderloom.InferenceSession(parse(DOUBLE), providers=["wgpu", "cpu"], **options)
    with pytest.warns(UserWarning, match="provider 'wgpu' cannot run"):
        result = session.run(None, {"x": x})[0]
    session.close()
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, x + x)
    with shaderloom.InferenceSession(parse(TEXT), providers=["wgpu", "cpu"], **options) as session:
        assert session.get_providers() == ["wgpu", "cpu"]
        with pytest.warns(UserWarning, match="provider 'wgpu' cannot run"):
            (text,) = session.run(None, {"x": ["a", "b"], "z": ["c", "d"]})
        assert text.tolist() == ["ac", "bd"]
    with pytest.raises(UnsupportedError):
        shaderloom.InferenceSession(parse(DOUBLE), **options).run(None, {"x": x})


@pytest.mark.filterwarnings("ignore")
def test_a_profile_takes_the_inputs_of_a_run(device):
    """Also those of types that only the host has; nodes on the device alone are measured."""
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]> g (double[n] x) => (float[n] y) {
        a = Neg(x)  b = Cast<to = 1>(a)  y = Softmax<axis = 0>(b) }"""
    )
    with shaderloom.InferenceSession(model, providers=["wgpu", "cpu"], device=device, cache=False) as session:
        ((_, profile),) = session.profile_stages({"x": np.ones(3)})
        assert len(profile.calls) == 1
        assert [row.provider for row in session.placement()] == ["cpu", "cpu", "wgpu"]


def test_what_cannot_be_compiled_goes_to_the_cpu_once_told(device, monkeypatch):
    attempts = []

    def refuse(*arguments, **options):
        attempts.append(arguments)
        raise UnsupportedError("not on a device")

    monkeypatch.setattr("shaderloom.compiler.driver.compile_unit", refuse)
    x = np.arange(3, dtype=np.float32)
    with shaderloom.InferenceSession(
        parse(ADD), providers=["wgpu", "cpu"], device=device, cache=False, preferred_output_location="gpu-buffer"
    ) as session:
        with pytest.warns(UserWarning, match="provider 'wgpu' cannot run 1 node, 'cpu' does .*not on a device"):
            (result,) = session.run(None, {"x": x})
        assert result.location == "gpu-buffer"
        np.testing.assert_array_equal(result.numpy(), x + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            target = shaderloom.Tensor.empty((3,), np.float32, device)
            session.run(None, {"x": shaderloom.Tensor.from_numpy(x, device)}, outputs={"y": target})
        np.testing.assert_array_equal(target.numpy(), x + 1)
    assert len(attempts) == 2  # the whole model, and its only stage
    with (
        shaderloom.InferenceSession(parse(ADD), providers=["wgpu"], device=device, cache=False) as session,
        pytest.raises(UnsupportedError, match="not on a device"),
    ):
        session.run(None, {"x": x})


def test_a_bad_model_is_no_reason_to_drop_a_provider():
    with pytest.raises(shaderloom.ModelError):
        shaderloom.InferenceSession(b"junk" * 10, providers=["wgpu", "cpu"])


def test_a_software_adapter_is_named_once(monkeypatch):
    from shaderloom.runtime.device.adapters import list_adapters

    if not list_adapters() or list_adapters()[0].kind != "cpu":
        pytest.skip("the first adapter is no software one")
    monkeypatch.delenv("SHADERLOOM_ADAPTER", raising=False)
    feeds = {"x": np.zeros(3, np.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = shaderloom.InferenceSession(parse(ADD), cache=False)
        with pytest.raises(InputError, match="no value was given"):
            session.run(None, {})
    with pytest.warns(shaderloom.SoftwareAdapterWarning, match=r"one; on this machine providers=\['cpu'\]") as caught:
        session.run(None, feeds)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.run(None, feeds)
        session.close()
        for options in ({}, {"device": 0}):
            with shaderloom.InferenceSession(parse(ADD), cache=False, **options) as session:
                session.run(None, feeds)


def test_provider_options_choose_the_device(device):
    name = device.name.split()[0]
    with shaderloom.InferenceSession(
        parse(ADD), providers=["wgpu"], provider_options=[{"device": name}], cache=False
    ) as session:
        assert session.device is device
    with pytest.raises(DeviceError, match="no adapter matches 'nothing'"):
        shaderloom.InferenceSession(parse(ADD), providers=[("wgpu", {"device": "nothing"})], cache=False)
    with pytest.warns(UserWarning, match="'validationMode' of provider 'wgpu' has no effect"):
        shaderloom.InferenceSession(
            parse(ADD), providers=[("wgpu", {"validationMode": "disabled"})], device=device, cache=False
        ).close()
    with pytest.raises(InputError, match="no power preference 'warp'"):
        shaderloom.InferenceSession(parse(ADD), providers=[("wgpu", {"powerPreference": "warp"})], cache=False)


def test_low_power_prefers_an_integrated_adapter():
    def adapter(index: int, kind: str, backend: str = "Vulkan") -> AdapterDescription:
        return AdapterDescription(index, f"{kind} card", "1.0", kind, backend, (), {})

    found = [adapter(0, "discrete"), adapter(1, "integrated"), adapter(2, "cpu")]
    assert choose_adapter(None, found).index == 0
    assert choose_adapter(None, found, "high-performance").index == 0
    assert choose_adapter(None, found, "low-power").index == 1
    assert choose_adapter("cpu", found, "low-power").index == 2
    assert choose_adapter(None, found[:1], "low-power").index == 0
    opengl = adapter(3, "integrated", "OpenGL")
    assert choose_adapter(None, [found[2], opengl], "low-power").index == 2
    assert choose_adapter(None, [opengl], "low-power").index == 3


def test_a_refusal_lists_what_importing_and_what_inferring_refuse(device):
    """Operators that are unknown, types that only inference tells, and what reads these: all of them at once."""
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18, "other" : 1]>
        g (float[n, 3] x, string[2] s) => (float[n, 3] y, float[n, 3] z, string[2] t) {
            a = Cast<to = 11>(x)  b = Mul(a, a)  y = Cast<to = 1>(b)
            c = other.Unknown(x)  z = Sqrt(c)
            t = StringNormalizer(s) }"""
    )
    with pytest.raises(UnsupportedError, match="asks 5 times") as caught:
        shaderloom.InferenceSession(model, providers=["wgpu"], device=device)
    text = str(caught.value)
    for name in ("Cast (main node 0)", "Unknown (main node 3)", "StringNormalizer (main node 5)"):
        assert name in text
    assert "Mul (main node 1): it reads 'a'" in text and "Cast (main node 2): it reads 'b'" in text
    assert "Sqrt" not in text  # which only reads what is refused


def test_a_refusal_of_a_long_chain_has_an_end(device):
    steps = " ".join(f"t{number + 1} = Neg(t{number})" for number in range(80))
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    model = parse(f"{header} g (float[2] x) => (float[2] y) {{ t0 = Cast<to = 11>(x) {steps} y = Cast<to = 1>(t80) }}")
    session = shaderloom.InferenceSession(model, providers=["wgpu"], device=device)
    with pytest.raises(UnsupportedError, match=r"asks 82 times .* Neg \(main node 49\): .*; and 32 more") as caught:
        session.run(None, {"x": np.zeros(2, np.float32)})
    assert "main node 50" not in str(caught.value)


@pytest.mark.usefixtures("quiet_providers")
def test_functions_of_another_opset_run_on_the_cpu(device):
    """ReduceMax takes its axes as an attribute at the function's opset; the table is longer than the compiler reads."""
    table = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    text = """<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
    g (float[n, 5000] x) => (float[5000] y) { s = Mul(x, x)  t = local.most(s)  y = Neg(t) }
    <domain: "local", opset_import: ["" : 17]>
    most (a) => (b) { m = ReduceMax<axes = [0], keepdims = 0>(a)  b = Add(m, c) }"""
    model = parse(text)
    constant = onnx.helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(table))
    model.functions[0].node.insert(0, constant)
    x = np.random.default_rng(1).standard_normal((3, 5000)).astype(np.float32)
    with shaderloom.InferenceSession(model, device=device, providers=["wgpu", "cpu"], cache=False) as session:
        (y,) = session.run(None, {"x": x})
        assert [each.provider for each in session.placement()] == ["wgpu", "cpu", "wgpu"]
    np.testing.assert_allclose(y, -((x * x).max(0) + table), rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "providers", "words"),
    [
        (ADD, ["CUDAExecutionProvider", "CPUExecutionProvider"], "is dropped"),
        (ADD, ["CPUExecutionProvider"], "runs on the cpu"),
        (DOUBLE, ["wgpu", "cpu"], "cannot run 1 node"),
    ],
)
def test_warnings_are_of_the_line_that_called(device, model, providers, words):
    """However deep in the package they are issued, also for a session of a class that is derived of ours."""

    class Derived(shaderloom.InferenceSession):
        pass

    for kind in (shaderloom.InferenceSession, Derived):
        notices.forget()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with kind(parse(model), device=device, providers=providers, cache=False) as session:
                session.run(None, {"x": np.zeros(3, np.float64 if model is DOUBLE else np.float32)})
        files = {Path(each.filename).name for each in caught if words in str(each.message)}
        assert files == {Path(__file__).name}


@pytest.mark.usefixtures("quiet_providers")
@pytest.mark.parametrize("providers", [["wgpu", "cpu"], ["cpu"]])
def test_what_onnxruntime_might_run_says_how_to_install_it(device, monkeypatch, providers):
    monkeypatch.setattr("shaderloom.api.providers.cpu_packages", lambda: ["onnx"])
    model = parse("""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    g (float[n, 2] x) => (float[n, 2] y) { m = ai.onnx.ml.ZipMap<classlabels_int64s = [1, 2]>(x)
    y = ai.onnx.ml.DictVectorizer<int64_vocabulary = [1, 2]>(m) }""")
    with (
        shaderloom.InferenceSession(model, providers=providers, device=device, cache=False) as session,
        pytest.raises(UnsupportedError, match=r"onnxruntime is not installed; .*\[pip install 'shaderloom\[cpu\]'"),
    ):
        session.run(None, {"x": np.zeros((3, 2), np.float32)})
