"""The registry is complete for every caller, also after an interrupt while the operators were being imported.

Covers: compiler/ops/registry.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from shaderloom.compiler.ops.registry import registry

from ...support.effort import quick_first

INTERRUPTED = """
import sys
calls = 0
def interrupt(frame, event, argument):
    global calls
    code = frame.f_code
    if event == "call" and code.co_name == "register" and code.co_filename.endswith("registry.py"):
        calls += 1
        if calls == {moment}:
            sys.setprofile(None)
            raise KeyboardInterrupt
sys.setprofile(interrupt)
try:
    from shaderloom.compiler.frontend import load_model
    raise SystemExit("nothing was interrupted")
except KeyboardInterrupt:
    pass
import onnx
from shaderloom.compiler.frontend import load_model
text = '<ir_version: 8, opset_import: ["" : 18]> g (float[2,3] x) => (float[3,2] y) {{ t = Transpose(x)  y = Relu(t) }}'
model = load_model(onnx.parser.parse_model(text))
assert [node.definition.name for node in model.graph.nodes] == ["Transpose", "Relu"]
from shaderloom.compiler.ops.registry import registry
print(len(list(registry.all())))
"""


@pytest.mark.parametrize("moment", quick_first([260, 1, 2, 101, 401]))
def test_an_interrupted_import_goes_on(moment: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(moment=moment)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    own = [each for each in registry.all() if each.infer.__module__.startswith("shaderloom.")]
    assert int(done.stdout) == len(own)
    assert {definition.name for definition in registry.all()} >= {"Transpose", "Gelu", "SoftmaxProduct"}


def test_an_operator_is_registered_once() -> None:
    with pytest.raises(ValueError, match="registered already"):
        registry.register(registry.get("Relu"))
