"""Devices for tests: every software or hardware adapter that the machine has, each a parameter of its own."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

settings.register_profile("default", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("soak", max_examples=5000, deadline=None, print_blob=True)
settings.load_profile("default")

SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
DRIVER_FOLDERS = (
    Path("/usr/share/vulkan/icd.d"),
    Path("/usr/local/share/vulkan/icd.d"),
    Path("/etc/vulkan/icd.d"),
)


def _offer_swiftshader() -> None:
    """List Chromium's SwiftShader beside the system's drivers.  Must run before wgpu is imported."""
    if os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES") or not SWIFTSHADER.is_file():
        return
    present = [str(file) for folder in DRIVER_FOLDERS if folder.is_dir() for file in sorted(folder.glob("*.json"))]
    files = os.pathsep.join([*present, str(SWIFTSHADER)])
    os.environ["VK_DRIVER_FILES"] = os.environ["VK_ICD_FILENAMES"] = files


_offer_swiftshader()
if not os.environ.get("XDG_RUNTIME_DIR"):  # wgpu complains when it is unset
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()

#: Parts of the names of the devices that are tested in turn; on a machine with a GPU, the GPU's
ADAPTERS = tuple(os.environ.get("SHADERLOOM_TEST_ADAPTERS", "llvmpipe,SwiftShader").split(","))


def pytest_sessionstart() -> None:
    """Draw the same examples in every run but that of ``./dev soak``.

    Hypothesis also draws numbers from the source of modules that happen to be imported, which depends on the worker.
    """
    if settings.default is not settings.get_profile("soak"):
        providers.HypothesisProvider._local_constants = providers.Constants()


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they take."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & DEVICE_FIXTURES:
            item.add_marker("device")
        if "browser" in fixtures:
            item.add_marker("browser")


def pytest_collection_finish() -> None:
    """Keep what collection made, a million objects, out of the garbage collections of tests that look for leaks."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _small_heap() -> None:
    """Keep what earlier tests left, a million objects in the end, out of the garbage collections of this module."""
    gc.collect()
    gc.freeze()


#: Fixtures that open a device
DEVICE_FIXTURES = {"device", "each_device", "web_device", "opengl_device"}


def open_adapter(name: str, **options: bool):
    """The shared device of the adapter whose name contains ``name``; skips the calling test if there is none.

    One of OpenGL is taken only if it is asked for as such.
    """
    from shaderloom.runtime.device.adapters import OPENGL, choose_adapter, list_adapters
    from shaderloom.runtime.device.opening import open_device
    from shaderloom.runtime.plan.errors import DeviceError

    try:
        if name != OPENGL and choose_adapter(name, list_adapters()).backend == OPENGL:
            pytest.skip(f"no device '{name}' but one of OpenGL")
        return open_device(name, **options)
    except DeviceError as error:
        pytest.skip(f"no device '{name}': {error}")


@pytest.fixture(scope="session")
def device():
    """The device that a user gets by default; skips where there is no adapter."""
    return open_adapter("")


@pytest.fixture(scope="session", params=ADAPTERS)
def each_device(request: pytest.FixtureRequest):
    """Each device in turn."""
    return open_adapter(request.param)


@pytest.fixture(scope="session", params=ADAPTERS)
def web_device(request: pytest.FixtureRequest):
    """Each device with WebGPU's default limits and without optional features, as in a browser."""
    return open_adapter(request.param, web_limits=True, features=False)


@pytest.fixture(scope="session")
def opengl_device():
    """The device of wgpu's OpenGL adapter; on Debian Mesa's, of libegl1, libegl-mesa0 and libgl1-mesa-dri."""
    return open_adapter("OpenGL")


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the disk cache of this test and of the processes that it starts."""
    monkeypatch.setenv("SHADERLOOM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def interrupts():
    """SIGINT raises KeyboardInterrupt, also in processes that the test starts, whatever the tests inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def fresh_notices():
    """What a process says once is said again."""
    from shaderloom import notices

    notices.forget()
    yield
    notices.forget()


@pytest.fixture
def quiet_providers(fresh_notices):
    """No word about nodes that go to another provider."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "provider 'wgpu' cannot run")
        yield


@pytest.fixture
def pair(device):
    """Opens sessions beside onnxruntime: ``pair(model or text, providers, **options)``."""
    from tests.support.programs import WGPU, Pair, parse

    opened = []

    def make(model, providers=WGPU, **options) -> Pair:
        made = Pair(parse(model) if isinstance(model, str) else model, device, providers, **options)
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.session.close()
