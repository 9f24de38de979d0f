"""A session opens its device in a thread while it reads its model; to callers it is as if it came first."""

import threading
from types import SimpleNamespace

import pytest

import shaderloom
from shaderloom import DeviceError, InputError, ModelError
from shaderloom.model import model as model_module
from shaderloom.session import opening_device
from shaderloom.session.opening_device import OpeningDevice

from ...support.patience import PATIENCE


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert "shaderloom-device" not in {thread.name for thread in threading.enumerate()}


def software_device(**arguments):
    return SimpleNamespace(profile=SimpleNamespace(is_software=True), name="soft", arguments=arguments)


def refuse(**arguments):
    raise DeviceError("no adapter")


def test_the_block_runs_while_the_device_is_opened(monkeypatch):
    started, read = threading.Event(), threading.Event()

    def open_slowly(**arguments):
        started.set()
        assert read.wait(PATIENCE)
        return software_device(**arguments)

    monkeypatch.setattr(opening_device, "open_device", open_slowly)
    with OpeningDevice("soft", {"powerPreference": "low-power"}, 2) as opening:
        assert started.wait(PATIENCE)
        read.set()
        opened = opening.result()
    assert opening.wait_for_profile() is None, "it is there"
    del opened.arguments["on_profile"]
    assert opened.arguments == {"choice": "soft", "power_preference": "low-power"}


def test_the_error_of_the_device_comes_first(monkeypatch):
    monkeypatch.setattr(opening_device, "open_device", refuse)
    with pytest.raises(DeviceError, match="no adapter") as raised:
        shaderloom.InferenceSession(b"no model")
    assert raised.value.__cause__ is None
    with pytest.raises(DeviceError, match="no adapter"), OpeningDevice(None, {}, 2) as opening:
        opening.result()


def test_the_error_of_the_block_is_raised_as_it_is(monkeypatch):
    monkeypatch.setattr(opening_device, "open_device", software_device)
    with pytest.raises(ModelError):
        shaderloom.InferenceSession(b"no model")
    with pytest.raises(InputError, match="bad option"), OpeningDevice(None, {}, 2):
        raise InputError("bad option")


def test_an_interrupt_waits_for_the_thread(monkeypatch):
    interrupted = threading.Event()

    def open_slowly(**arguments):
        interrupted.wait(PATIENCE)
        threading.Event().wait(0.05)
        raise DeviceError("no adapter")

    def interrupt(*_, **__):
        interrupted.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(opening_device, "open_device", open_slowly)
    monkeypatch.setattr(model_module, "Model", interrupt)
    with pytest.raises(KeyboardInterrupt):
        shaderloom.InferenceSession(b"no model")
