"""The loss of a device while threads run on it: an error in each of them, never the end of the process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ...support.patience import PATIENCE

#: Rounds of a program; without the gate before submissions three of five ended the process
ROUNDS = 6

PROGRAM = """
import json, random, sys, threading
import numpy as np
import onnx.parser
import shaderloom
from shaderloom.runtime.device import loss, native
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.device.opening import open_device

MODEL = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 16] x) => (float[n, 16] y) { s = MatMul(x, w) y = Relu(s) }''')
MODEL.graph.initializer.append(onnx.numpy_helper.from_array(2 * np.eye(16, dtype=np.float32), "w"))

def destroy(gpu):
    gpu.destroy()

def lose(gpu):
    '''What a driver does that resets between two calls of this process: wgpu-native calls wgpu-py back.'''
    lib, ffi, gate = native.lib, native.ffi, loss.gate_of(gpu)
    message = ffi.new("char[]", b"reset")
    with gate.turn:
        gate._unread.wait_for(lambda: not gate._readers)
        lib.wgpuDeviceDestroy(gpu._internal)
        view = ffi.new("WGPUStringView *", {"data": message, "length": 5})
        gpu._device_lost_callback(ffi.NULL, lib.WGPUDeviceLostReason_Unknown, view[0], ffi.NULL, ffi.NULL)

def work(number, device, session, started, outcomes):
    draw = random.Random(number)
    x = np.ones((3, 16), np.float32)
    try:
        while True:
            if number == 1:
                x = np.ones((draw.randrange(1, 6), 16), np.float32)
            feed = shaderloom.Tensor.from_numpy(x, device) if number == 2 else x
            (y,) = session.run(None, {"x": feed})
            assert (y == 2 * x).all()
            started[number].set()
    except shaderloom.DeviceLost:
        outcomes.append("lost")
    except BaseException as error:
        outcomes.append(repr(error))
    started[number].set()

chance = random.Random(0)
for _ in range(int(sys.argv[2])):
    device = open_device(None).sibling()
    session = shaderloom.InferenceSession(MODEL, device=device, cache=False)
    started = [threading.Event() for _ in range(4)]
    outcomes = []
    arguments = (device, session, started, outcomes)
    threads = [threading.Thread(target=work, args=(number, *arguments)) for number in range(4)]
    for thread in threads:
        thread.start()
    for event in started:
        event.wait()
    threads[0].join(chance.random() * 0.05)
    {"destroy": destroy, "lose": lose}[sys.argv[1]](device.gpu)
    for thread in threads:
        thread.join()
    print(json.dumps([device.lost, open_device(None).check_lost(), *outcomes]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["destroy", "lose"])
def test_a_loss_is_told_in_every_thread(device, way):
    """By ``destroy()`` of another thread, and by a loss that wgpu's callback tells; other devices are not affected."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way, str(ROUNDS)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[True, False, *["lost"] * 4]] * ROUNDS
