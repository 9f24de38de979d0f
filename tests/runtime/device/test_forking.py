"""Children forked from a process that has used a GPU: told at once what they may not do, and free to end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ...support.patience import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")]

PROGRAM = """
import gc, os, sys, threading
import numpy as np
import onnx.parser
import shaderloom

model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) {y = Neg(x)}')
feeds = {"x": np.ones(3, np.float32)}
session = shaderloom.InferenceSession(model, cache=False)
session.run(None, feeds)
tensor = shaderloom.Tensor.from_numpy(feeds["x"])
ended = threading.Event()

def work():
    while not ended.is_set():
        session.run(None, feeds)

USES = (
    lambda: session.run(None, feeds),
    lambda: session.run(None, {"x": tensor}),
    session.synchronize,
    tensor.numpy,
    lambda: tensor.update(feeds["x"]),
    lambda: shaderloom.InferenceSession(model, cache=False),
    lambda: shaderloom.Tensor.from_numpy(feeds["x"]),
)

def use():
    told = 0
    for attempt in USES:
        try:
            attempt()
        except shaderloom.DeviceError as error:
            told += "spawn" in str(error)
    sys.exit(told)

def collect():
    global session, tensor
    session = tensor = None
    gc.collect()
    sys.exit(7)

def close():
    tensor.dispose()
    session.close()
    sys.exit(7)

def leave():
    print("left", end="")
    sys.exit(7)

thread = threading.Thread(target=work)
thread.start()
for what in (use, collect, close, leave, lambda: os._exit(7)):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        what()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ended.set()
thread.join()
print(session.run(None, feeds)[0].tolist())
"""


def test_a_forked_child_is_told_and_ends_with_its_status(device):
    """The parent's threads go on; every use in a child is refused, and a child can collect, close and leave."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split() == ["7", "7", "7", "left7", "7", "[-1.0,", "-1.0,", "-1.0]"], done.stderr
