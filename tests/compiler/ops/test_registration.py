"""The registry is complete for every caller, also after an interrupt while operators were being imported.

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
from shaderloom.runtime.plan import bytecode_file
if {all}:  # as in the first process, which has no index and imports all modules
    bytecode_file.load = lambda path, checksum: None
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
import onnx
text = '<ir_version: 8, opset_import: ["" : 18]> g (float[2,3] x) => (float[3,2] y) {{ t = Transpose(x)  y = Relu(t) }}'
try:
    from shaderloom.compiler.frontend import load_model
    load_model(onnx.parser.parse_model(text))
    raise SystemExit("nothing was interrupted")
except KeyboardInterrupt:
    pass
from shaderloom.compiler.frontend import load_model
model = load_model(onnx.parser.parse_model(text))
assert [node.definition.name for node in model.graph.nodes] == ["Transpose", "Relu"]
from shaderloom.compiler.ops.registry import registry
print(len(list(registry.all())))
"""


@pytest.mark.parametrize(("moment", "all_modules"), quick_first([(260, True), (2, False), (1, True), (101, True)]))
def test_an_interrupted_import_goes_on(moment: int, all_modules: bool) -> None:
    """Of all modules, and of the one that is looked up: the second operator of its module is being registered."""
    command = [sys.executable, "-c", INTERRUPTED.format(moment=moment, all=all_modules)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    own = [each for each in registry.all() if each.infer.__module__.startswith("shaderloom.")]
    assert int(done.stdout) == len(own)
    assert {definition.name for definition in registry.all()} >= {"Transpose", "Gelu", "SoftmaxProduct"}


def test_an_operator_is_registered_once() -> None:
    with pytest.raises(ValueError, match="registered already"):
        registry.register(registry.get("Relu"))
