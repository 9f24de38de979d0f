"""Running bundles: the results of sessions, without the compiler."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx.parser
import onnx.reference
import pytest

import shaderloom
from shaderloom.bundles.compile import compile_bundle
from shaderloom.bundles.session import BundlePlans, BundleSession
from shaderloom.model.feeds import shape_key
from shaderloom.runtime.bundle.format import MANIFEST
from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.runtime.bundle.writer import BundleWriter
from shaderloom.runtime.plan.caps import Caps
from shaderloom.runtime.plan.device_profile import WEB

from ...support.bundles import change_manifest, feeds, files_of, product_bundle, seal, small_bundle, small_model
from ...support.command_line import run_command
from ...support.patience import PATIENCE
from ...support.sessions import engine_of, note_checks


def expected(n: int) -> list[np.ndarray]:
    return onnx.reference.ReferenceEvaluator(small_model()).run(None, feeds(n))


def agree(found, reference, tolerance: float = 1e-5) -> None:
    for mine, other in zip(found, reference, strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["cpu", "discrete"])
def test_the_kind_of_the_adapter_chooses_the_kernels(tmp_path, kind):
    with Bundle(product_bundle(tmp_path / "b", 64)) as bundle:
        source = BundlePlans(bundle, Caps())
        shapes = {"x": (64, 64)}
        chosen = source.compile(shape_key(source.header, shapes, {}), shapes, replace(WEB, kind=kind)).plan
        (record,) = bundle.manifest.plans
        assert chosen.key == (record.software if kind == "cpu" else record.key)


def test_plans_for_gpus_alone_are_refused_on_software_adapters(tmp_path):
    """Their loops may be longer than a software driver runs them, and it says nothing."""
    with Bundle(product_bundle(tmp_path / "b", 64, target="native", software=False)) as bundle:
        source = BundlePlans(bundle, Caps())
        shapes = {"x": (64, 64)}
        key = shape_key(source.header, shapes, {})
        assert source.compile(key, shapes, replace(WEB, kind="discrete")).plan.key == bundle.manifest.plans[0].key
        with pytest.raises(shaderloom.DeviceError, match="compiled for GPUs") as caught:
            source.compile(key, shapes, replace(WEB, kind="cpu", adapter="llvmpipe"))
        assert "--software" in str(caught.value)


@pytest.mark.parametrize("target", ["web", "web-software"])
@pytest.mark.parametrize("as_zip", [False, True], ids=["folder", "zip"])
def test_results_are_those_of_the_reference(web_device, tmp_path, as_zip, target):
    path = small_bundle(tmp_path / "b", 5, 7, as_zip=as_zip, target=target)
    with shaderloom.load_bundle(path, device=web_device) as session:
        for n in (5, 7, 5):
            agree(session.run(None, feeds(n)), expected(n))
        assert (session.stats.misses, session.stats.hits) == (2, 1)
        names = ["table", "shape", "same"]
        assert [list(array.shape) for array in session.run(names, feeds(7))] == [[3000, 8], [3], [2, 7, 8]]


def test_one_plan_serves_declared_dynamic_sizes(web_device, tmp_path):
    path = small_bundle(tmp_path / "b", 3, dynamic={"n": (1, 64)})
    with shaderloom.load_bundle(path, device=web_device) as session:
        for n in (3, 64, 1, 17):
            agree(session.run(None, feeds(n)), expected(n))
        assert session.stats.misses == 1
        with pytest.raises(shaderloom.InputError, match="'n', is 65"):
            session.run(None, feeds(65))


def test_a_declared_range_of_one_size_is_a_number(device, tmp_path):
    ranges = {"n": (5, 5), "batch": (1, 4)}
    manifest = compile_bundle(small_model(), tmp_path / "b", shapes=[{"x": (2, 5, 8)}], dynamic=ranges)
    assert (manifest.plans[0].shapes["x"], list(manifest.dynamic)) == (("batch", 5, 8), ["batch"])
    with shaderloom.load_bundle(tmp_path / "b", device=device) as session:
        assert session.run(["y"], feeds(5, batch=3))[0].shape == (3, 5, 8)
        with pytest.raises(shaderloom.InputError, match="5"):
            session.run(["y"], feeds(6))


def test_weights_of_bundle_and_session_agree(web_device, tmp_path):
    """What the host makes for one and the device for the other: a product, a reduction, a layout, a transposition."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        m (float[2, 16, 9, 9] x, float[130, 130] w, float[128, 16, 3, 3] k, int64[8] pads, int64[1] one)
            => (float[2, 128, 9, 9] y, float[2, 130] z) {
            t = Transpose<perm = [1, 0]>(w)
            q = MatMul(t, w)
            s = ReduceMean<axes = [1], keepdims = 0>(q)
            r = Mul(q, s)
            c = Conv(x, k)
            y = Pad(c, pads)
            mean = ReduceMean<axes = [1, 2, 3], keepdims = 0>(x)
            column = Unsqueeze(mean, one)
            row = Mul(column, s)
            z = MatMul(row, r)
        }"""
    )
    del model.graph.input[1:]
    generator = np.random.default_rng(0)
    arrays = {
        "w": generator.standard_normal((130, 130)).astype(np.float32) / 8,
        "k": generator.standard_normal((128, 16, 3, 3)).astype(np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
        "one": np.array([1], np.int64),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    inputs = {"x": generator.standard_normal((2, 16, 9, 9)).astype(np.float32)}
    compile_bundle(model, tmp_path / "b")
    with (
        shaderloom.load_bundle(tmp_path / "b", device=web_device) as ahead,
        shaderloom.InferenceSession(model, device=web_device, cache=False) as jit,
    ):
        found = ahead.run(None, inputs)
        agree(found, jit.run(None, inputs), 1e-4)
        agree(found, onnx.reference.ReferenceEvaluator(model).run(None, inputs), 1e-4)
        assert jit.report()["weight_transforms"] >= 3
        assert ahead.report()["weight_transforms"] == 0


def test_the_session_answers_like_that_of_a_model(device, tmp_path):
    path = small_bundle(tmp_path / "b", 5)
    with (
        shaderloom.load_bundle(path, device=device) as ahead,
        shaderloom.InferenceSession(small_model(), device=device, cache=False) as jit,
    ):
        assert ahead.get_inputs() == jit.get_inputs()
        assert ahead.get_outputs() == jit.get_outputs()
        assert ahead.get_modelmeta() == jit.get_modelmeta()
        assert ahead.get_providers() == ["wgpu"]
        ahead.prepare()
        facts = ahead.report()
        assert facts["weight_transforms"] == 0
        assert facts["calls"] == len(facts["call_list"]) > 0
        assert facts["nodes"] == jit.report({"x": (2, 5, 8), "bias": (8,)})["nodes"]
        assert facts["from_disk"]
        assert len(ahead.profile(feeds(5)).calls) == facts["calls"]
        assert ahead.device_bytes > 0
    with pytest.raises(shaderloom.ClosedError):
        ahead.run(None, feeds(5))
    ahead.close()


def test_tensors_stay_on_the_device(device, tmp_path):
    path = small_bundle(tmp_path / "b", 5)
    with shaderloom.load_bundle(path, device=device, preferred_output_location="gpu-buffer") as session:
        inputs = {name: shaderloom.Tensor.from_numpy(array, device=device) for name, array in feeds(5).items()}
        results = session.run(None, inputs)
        assert {result.location for result in results} == {"gpu-buffer"}
        agree([result.numpy() for result in results], expected(5))
        for tensor in (*inputs.values(), *results):
            tensor.dispose()


def test_unknown_shapes_are_refused_with_those_that_there_are(device, tmp_path):
    with shaderloom.load_bundle(small_bundle(tmp_path / "b", 5, 7), device=device) as session:
        known = r"not compiled for x=2x6x8, bias=8 \[it was for x=2x5x8, bias=8; x=2x7x8, bias=8\]"
        with pytest.raises(shaderloom.InputError, match=known):
            session.run(None, feeds(6))
        agree(session.run(None, feeds(5)), expected(5))
        assert list(map(str, session.shape_keys)) == ["x=2x5x8, bias=8", "x=2x7x8, bias=8"]


#: What only sessions of models have
FOREIGN = inspect.signature(shaderloom.InferenceSession).parameters.keys() - (
    inspect.signature(BundleSession).parameters.keys()
)

#: What goes wrong with a bundle of shapes, and of halves, of a text that nothing needs
MISUSE: dict[str, Callable[[BundleSession], object]] = {
    "other shapes": lambda session: session.run(None, feeds(6)),
    "an input that no device holds": lambda session: session.run(None, {**feeds(5), "note": np.array("a", object)}),
    "an input that there is not": lambda session: session.run(None, {**feeds(5), "z": np.zeros(1)}),
    "an input of another type": lambda session: session.run(None, {**feeds(5), "x": np.zeros((2, 5, 8))}),
    "an output that there is not": lambda session: session.run(["z"], feeds(5)),
    "a place that there is not": lambda session: session.run(None, feeds(5), outputs={"y": "moon"}),
    "calibration": lambda session: session.calibrate(feeds(5)),
    "placement": lambda session: session.placement(),
    "rows of other shapes": lambda session: session.batched().run(None, feeds(6)),
    "plans of no shapes": lambda session: session.report({"x": (1,)}),
    "another device": lambda session: session.recover("moon") or session.prepare({"x": (1,), "bias": (8,)}),
}


def require_own_words(error: shaderloom.ShaderloomError) -> None:
    """Check that an error names no option which a bundle's session does not have."""
    named = {name for name in FOREIGN if re.search(rf"\b{name}=", str(error))}
    assert named == set(), str(error)
    assert "SessionOptions" not in str(error) and "InferenceSession" not in str(error)
    assert error.hint or error.remedy or isinstance(error, shaderloom.InputError)


@pytest.mark.parametrize("name", MISUSE)
def test_errors_are_in_words_of_bundles(device, tmp_path, name):
    path = small_bundle(tmp_path / "b", 5)
    change_manifest(
        path,
        inputs=[*json.loads((path / MANIFEST).read_bytes())["inputs"], {"name": "note", "dtype": None, "dims": []}],
    )
    seal(path)
    with shaderloom.load_bundle(path, device=device) as session, pytest.raises(shaderloom.ShaderloomError) as caught:
        MISUSE[name](session)
    require_own_words(caught.value)


@pytest.mark.parametrize(
    "options", [{"caps": Caps(device_memory=64)}, {"caps": Caps(tensor_elements=8)}, {"caps": Caps(wgsl_bytes=9)},
                {"device": "moon"}, {"model": "moon"}, {"verify_key": b"moon"}],
)  # fmt: skip
def test_refusals_of_bundles_are_in_words_of_bundles(device, tmp_path, options):
    path = small_bundle(tmp_path / "b", 5)
    with (
        pytest.raises(shaderloom.ShaderloomError) as caught,
        shaderloom.load_bundle(path, **{"device": device, **options}) as session,
    ):
        session.run(None, feeds(5))
    require_own_words(caught.value)


def test_limits_of_the_device_are_in_words_of_bundles(device, tmp_path):
    path = small_bundle(tmp_path / "b", 5)
    (plan,) = path.glob(f"plan-{Bundle(path).manifest.plans[0].software}.json")
    content = json.loads(plan.read_bytes())
    plan.write_text(json.dumps({**content, "arenas": [1 << 50]}))
    seal(path)
    with (
        shaderloom.load_bundle(path, device=device) as session,
        pytest.raises(shaderloom.LimitError, match="a device that has more") as caught,
    ):
        session.run(None, feeds(5))
    require_own_words(caught.value)


def test_nothing_of_the_compiler_is_loaded(device, tmp_path):
    """With the imports blocked, so that a late one would fail too."""
    path = small_bundle(tmp_path / "b", 5)
    np.savez(tmp_path / "feeds.npz", **feeds(5))
    program = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        first = name.split(".")[0]
        if first in {{"onnx", "jinja2", "networkx", "google", "onnxruntime", "ml_dtypes"}}:
            raise ImportError(name)
        if name.startswith(("shaderloom.compiler", "shaderloom.templates")):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import numpy as np
import shaderloom
from shaderloom.bundles.verify import verify_samples
with shaderloom.load_bundle({str(path)!r}, device={device.name!r}) as session:
    results = session.run(None, dict(np.load({str(tmp_path / "feeds.npz")!r})))
    session.bundle.check_all()
    session.report()
    assert list(verify_samples(session)) == []
np.savez({str(tmp_path / "out.npz")!r}, *results)
assert not [name for name in sys.modules if name.startswith("shaderloom.compiler")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
    with np.load(tmp_path / "out.npz") as results:
        agree([results[name] for name in results.files], expected(5))


def test_shaders_of_a_bundle_keep_their_bounds_checks(device, tmp_path, monkeypatch):
    asked = note_checks(monkeypatch)
    path = small_bundle(tmp_path / "b", 11)
    with shaderloom.load_bundle(path, device=device) as session:
        session.run(None, feeds(11))
    assert asked
    assert all(asked)
    with pytest.raises(TypeError):
        shaderloom.load_bundle(path, device=device, bounds_checks=False)


def test_damage_is_found_before_bytes_reach_the_device(device, tmp_path):
    path = small_bundle(tmp_path / "b", 5)
    for name in ("weights-00001.safetensors", *(f"shaders/{item.name}" for item in (path / "shaders").iterdir())):
        data = (path / name).read_bytes()
        (path / name).write_bytes(data[:-1] + bytes([data[-1] ^ 4]))
        with shaderloom.load_bundle(path, device=device) as session:
            with pytest.raises(shaderloom.BundleError, match=f"'{name}' is damaged"):
                session.run(None, feeds(5))
            assert engine_of(session).resources.pool.uploaded_bytes == 0
        (path / name).write_bytes(data)


@pytest.mark.parametrize(
    ("fields", "error", "told"),
    [
        ({"features": ["shader-moon"]}, shaderloom.DeviceError, "features shader-moon"),
        ({"limits": {"maxBufferSize": 1 << 50}}, shaderloom.LimitError, "max-buffer-size of at least"),
        ({"limits": {"minStorageBufferOffsetAlignment": 1}}, shaderloom.LimitError, "of at most 1"),
        ({"limits": {"maxMoons": 1}}, shaderloom.LimitError, "'max-moons', which is no known limit"),
    ],
)
def test_devices_that_lack_something_are_refused(device, tmp_path, fields, error, told):
    path = small_bundle(tmp_path / "b", 5)
    change_manifest(path, **fields)
    with pytest.raises(error, match=told):
        shaderloom.load_bundle(path, device=device)


def test_a_plan_that_binds_beyond_its_buffers_is_refused(device, tmp_path):
    """Hashes are right: the plan itself is at fault, and the error says where."""
    path = small_bundle(tmp_path / "b", 5)
    name = json.loads((path / MANIFEST).read_bytes())["plans"][0]["file"]
    plan = json.loads((path / name).read_bytes())
    plan["commands"][0]["calls"][0]["ranges"][0]["offset"] = 1 << 20
    (path / name).write_text(json.dumps(plan))
    seal(path)
    with (
        shaderloom.load_bundle(path, device=device) as session,
        pytest.raises(shaderloom.BundleError, match=r"calls\[0\].ranges\[0\] lies outside its buffer"),
    ):
        session.run(None, feeds(5))


def test_weights_in_several_parts(device, tmp_path, monkeypatch):
    original = BundleWriter.__init__

    def small_files(self, target, **options):
        original(self, target, **{**options, "weights_file_bytes": 40_000})

    monkeypatch.setattr(BundleWriter, "__init__", small_files)
    path = small_bundle(tmp_path / "b", 5)
    with shaderloom.load_bundle(path, device=device) as session:
        assert max(map(len, session.bundle.manifest.weights.values())) == 5  # of 20,000 bytes
        agree(session.run(None, feeds(5)), expected(5))


# -- the commands ------------------------------------------------------------------------------------------------------


@pytest.fixture
def command(device, cache_folder, monkeypatch):
    monkeypatch.setenv("SHADERLOOM_ADAPTER", device.name)
    monkeypatch.setenv("COLUMNS", "200")
    return run_command


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return path


def test_compile_run_and_verify(command, model, tmp_path):
    bundle = tmp_path / "small.shaderbundle"
    given = []
    for name, array in feeds(5).items():
        np.save(tmp_path / f"{name}.npy", array)
        given += ["--input", f"{name}={tmp_path / name}.npy"]
    told = json.loads(
        command("compile", model, "-o", bundle, "--shape", "x=2x5x8", "--shape", "x=2x7x8", "--sample", "--json",
                *given).stdout
    )  # fmt: skip
    assert told["plans"] == [{"x": [2, 5, 8], "bias": [8]}, {"x": [2, 7, 8], "bias": [8]}]
    assert told["samples"] == 2
    verified = json.loads(command("verify", bundle, "--json").stdout)
    assert verified["agrees"]
    assert len(verified["outputs"]) == 10
    command("run", bundle, "--output", tmp_path / "out.npz", *given)
    with np.load(tmp_path / "out.npz") as results:
        agree([results[name] for name in results.files], expected(5))
    assert json.loads(command("run", bundle, "--json").stdout)["inputs"][0]["shape"] == [2, 5, 8]
    assert json.loads(command("run", bundle, "--shape", "x=2x7x8", "--json").stdout)["inputs"][0]["shape"] == [2, 7, 8]
    assert "not compiled for" in command("run", bundle, "--shape", "x=2x9x8", status=1).stderr
    assert "--dynamic" in command("run", bundle, "--dynamic", "n=1:5", status=1).stderr
    with shaderloom.load_bundle(bundle) as session:
        sample = session.bundle.sample(session.bundle.manifest.samples[0])
    np.testing.assert_array_equal(sample.inputs["x"], feeds(5)["x"])


def test_verify_says_what_differs(command, model, tmp_path):
    bundle = tmp_path / "small.shaderbundle"
    command("compile", model, "-o", bundle, "--shape", "x=2x5x8", "--sample")
    name = json.loads((bundle / MANIFEST).read_bytes())["samples"][0]["file"]
    data = (bundle / name).read_bytes()
    (bundle / name).write_bytes(data[:-1] + b"\x7e")  # the last output is int64
    assert f"'{name}' is damaged" in command("verify", bundle, status=1).stderr
    seal(bundle)
    result = command("verify", bundle, status=1)
    assert "output 'shape' differs in 1 of 3 elements" in result.stdout
    assert "output 'y' agrees" in result.stdout


def test_options_that_do_not_fit(command, model, tmp_path):
    target = tmp_path / "b"
    shape = ("--shape", "x=2x5x8")
    np.save(tmp_path / "x.npy", np.zeros((2, 5, 8), np.float32))
    given = ("--input", f"x={tmp_path / 'x.npy'}")
    assert "--sample" in command("compile", model, "-o", target, *shape, *given, status=1).stderr
    assert "no target" in command("compile", model, "-o", target, *shape, "--target", "moon", status=1).stderr
    assert "its shape is not known" in command("compile", model, "-o", target, status=1).stderr
    assert not target.exists()
    assert "there is no bundle" in command("verify", target, status=1).stderr
    command("compile", model, "-o", target, *shape, "--zip", "--target", "this-device")
    command("verify", target)


def test_the_device_does_not_change_the_bytes(each_device, tmp_path):
    """Samples apart: the target is what counts, and weights are made on the host."""
    plain = files_of(small_bundle(tmp_path / "plain", 5))
    sampled = files_of(small_bundle(tmp_path / "sampled", 5, sample=True, device=each_device))
    apart = {name: data for name, data in sampled.items() if not name.startswith(("samples/", "manifest"))}
    assert apart == {name: data for name, data in plain.items() if not name.startswith("manifest")}
