"""Programs that were written for onnxruntime, unchanged: what they print is the same on both libraries.

Covers: shaderloom/as_onnxruntime, shaderloom/as_onnxruntime/stand_in/onnxruntime/capi,
shaderloom/api/real_onnxruntime, shaderloom/cli/as_onnxruntime.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx.parser
import pytest

import shaderloom
from shaderloom.as_onnxruntime.launch import environment
from shaderloom.runtime.plan import onnxruntime_errors
from tests.support.patience import PATIENCE

onnxruntime = pytest.importorskip("onnxruntime")

ROOT = Path(__file__).resolve().parents[3]
HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
MODEL = HEAD + "(float[n, 3] x) => (float[n, 3] y, float[n, 3] z) { y = Relu(x) z = Neg(x) }"
#: float64, which no device has
DOUBLE = HEAD + "(double[n] x) => (double[n] y) { y = Relu(x) }"

PROGRAM = """
import sys
import numpy as np
import onnxruntime as ort
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession

model, double = sys.argv[1:3]
options = ort.SessionOptions()
options.intra_op_num_threads = 1
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
x = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
print(session.run(None, {"x": x}), session.run(["z"], {"x": x}))
print([(port.name, port.type, port.shape) for port in session.get_inputs()])
print(isinstance(session, InferenceSession), issubclass(C.InvalidArgument, Exception), ort.__version__)
for feed in (x[0], x.astype(np.float64)):
    try:
        session.run(None, {"x": feed})
    except InvalidArgument:
        print("refused")
try:
    ort.InferenceSession("none.onnx")
except NoSuchFile:
    print("no such file")
print(ort.InferenceSession(double, providers=["CUDAExecutionProvider", "CPUExecutionProvider"]).run(
    None, {"x": np.array([-1.0, 1e300])}))
session.set_providers(["CPUExecutionProvider"])
print(session.run(None, {"x": x})[0].sum(), "CPUExecutionProvider" in session.get_providers())
ort.set_seed(1); ort.set_default_logger_severity(3); ort.disable_telemetry_events(); ort.preload_dlls()
print(sys.argv[3:], __name__)
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """A program and its arguments."""
    arguments = [str(tmp_path / name) for name in ("program.py", "model.onnx", "double.onnx")]
    Path(arguments[0]).write_text(PROGRAM)
    for path, text in zip(arguments[1:], (MODEL, DOUBLE)):
        onnx.save(onnx.parser.parse_model(text), path)
    return [*arguments, "-m", "--flag"]


def execute(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter that finds this checkout; the default adapter is that of the tests."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )


@pytest.mark.slow
def test_a_program_prints_the_same(device, program):
    expected = execute(*program)
    assert expected.returncode == 0, expected.stderr
    for start in (["-m", "shaderloom.as_onnxruntime"], ["-m", "shaderloom", "as-onnxruntime", "--", sys.executable]):
        result = execute(*start, *program)
        assert (result.returncode, result.stdout) == (0, expected.stdout), result.stderr
        assert result.stderr.count("sessions that ask for CPUExecutionProvider get wgpu (") == 1
    result = execute("-m", "shaderloom.as_onnxruntime", *program, SHADERLOOM_PROVIDERS="program")
    assert (result.returncode, result.stdout) == (0, expected.stdout), result.stderr
    assert "ask for CPUExecutionProvider get cpu [" in result.stderr
    assert "ask for CUDAExecutionProvider, CPUExecutionProvider get wgpu (" in result.stderr


#: Beside the interface programs pickle, derive, read private names, make errors of warnings, and close streams
HABITS = """
import copy, functools, pickle, sys, warnings
warnings.simplefilter("error")
import numpy as np
import onnxruntime as ort
from onnxruntime.quantization import QuantType, quantize_dynamic
import onnxruntime.quantization.quant_utils

model, double, folder = sys.argv[1:4]
x = {"x": np.arange(6, dtype=np.float32).reshape(2, 3) - 2}

class PickableSession(ort.InferenceSession):
    def __init__(self, path, **options):
        super().__init__(path, **options)
        self.path = path
    def __getstate__(self):
        return {"path": self.path}
    def __setstate__(self, state):
        self.__init__(state["path"], providers=["CPUExecutionProvider"])

class Options(ort.SessionOptions):
    pass

session = PickableSession(model, providers=["CPUExecutionProvider"])
for other in (pickle.loads(pickle.dumps(session)), copy.copy(session), copy.deepcopy(session)):
    print(type(other).__name__, other.run(["z"], x)[0].tolist())
plain = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
try:
    pickle.dumps(plain)
except TypeError:
    print("no pickle")
options = Options()
options.batch = 2
level, mode = options.graph_optimization_level, options.execution_mode
print(options.batch, level, f"{mode}", int(level), repr(level), len({options, ort.SessionOptions()}))
print(plain._model_path == model, plain._model_bytes, [port.name for port in plain._inputs_meta + plain._outputs_meta])
print(type(plain), plain._model_meta.graph_name, plain._sess_options.intra_op_num_threads)
print(ort.InferenceSession(double, providers=["CPUExecutionProvider"]).run(None, {"x": np.array([-1.0, 1e300])}))
warnings.simplefilter("default")
quantize_dynamic(sys.argv[4], folder + "/quantized.onnx", weight_type=QuantType.QUInt8)
(y,) = ort.InferenceSession(folder + "/quantized.onnx").run(None, x)
print(y.round(2).tolist(), QuantType is onnxruntime.quantization.quant_utils.QuantType)
sys.stderr.close()
print(functools.lru_cache(ort.InferenceSession)(model).run(None, x))
"""


@pytest.mark.slow
def test_habits_of_programs(device, program, tmp_path):
    product = HEAD + "(float[n, 3] x) => (float[n, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }"
    onnx.save(onnx.parser.parse_model(product), tmp_path / "product.onnx")
    (tmp_path / "habits.py").write_text(HABITS)
    command = [str(tmp_path / "habits.py"), *program[1:3], str(tmp_path), str(tmp_path / "product.onnx")]
    expected = execute(*command)
    assert expected.returncode == 0, expected.stderr
    result = execute("-m", "shaderloom.as_onnxruntime", *command)
    assert (result.returncode, result.stdout) == (0, expected.stdout), result.stderr
    assert "shaderloom: provider 'wgpu' cannot run 1 node" in result.stderr, "a line, where a warning is an error"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.slow
def test_forked_children_run_on_the_cpu(device, program, tmp_path):
    (tmp_path / "parent.py").write_text(
        "import multiprocessing, sys, numpy as np, onnxruntime\n"
        "options = onnxruntime.SessionOptions()\n"
        "options.intra_op_num_threads = 1\n"
        "session = onnxruntime.InferenceSession(sys.argv[1], options, ['CPUExecutionProvider'])\n"
        "def run(value): return session.run(['z'], {'x': np.full((1, 3), value, np.float32)})[0].tolist()\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool:\n"
        "    print(run(1), pool.map(run, [2, 3]), run(4))\n"
    )
    command = [str(tmp_path / "parent.py"), program[1]]
    expected = execute(*command)
    result = execute("-m", "shaderloom.as_onnxruntime", *command)
    assert (result.returncode, result.stdout) == (0, expected.stdout), result.stderr
    assert result.stderr.count("the model runs on the cpu here [start processes with multiprocessing's 'spawn']") == 1


@pytest.mark.slow
def test_hints_are_in_the_words_of_the_mode(device, program):
    code = "import numpy as np, onnxruntime\n"
    code += f"onnxruntime.InferenceSession({program[2]!r}).run(None, {{'x': np.zeros(1)}})"
    result = execute("-m", "shaderloom.as_onnxruntime", "-c", code, SHADERLOOM_PROVIDERS="wgpu")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].endswith("SHADERLOOM_PROVIDERS=wgpu,cpu leaves what reads it to the cpu]")


def test_flags_that_hide_the_package_are_refused(program):
    result = execute(
        "-E",
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = ['x', 'p.py']; import runpy; "
        "runpy.run_module('shaderloom.as_onnxruntime', run_name='__main__')",
    )
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr == "shaderloom: python -E and -I ignore PYTHONPATH, by which a program finds this package\n"


RUN_ON_CPU = """
import numpy as np
session = {session}({model!r}, providers=["CPUExecutionProvider"])
print(session.run(["y"], {{"x": np.array([[-1, 0, 2]], np.float32)}})[0].tolist(), session._cpu.implementation)
"""


@pytest.mark.parametrize(
    "alias",
    [
        pytest.param("import sys, shaderloom\nsys.modules['onnxruntime'] = shaderloom", id="modules"),
        pytest.param(
            "import shaderloom, onnxruntime\nonnxruntime.InferenceSession = shaderloom.InferenceSession",
            id="patched",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import sys, types, shaderloom\nsys.modules['onnxruntime'] = shim = types.ModuleType('onnxruntime')\n"
            "shim.InferenceSession = type('Shim', (shaderloom.InferenceSession,), {})",
            id="shim",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import shaderloom\nshaderloom.install_as_onnxruntime()\nshaderloom.install_as_onnxruntime()",
            id="installed",
        ),
        pytest.param(
            "import onnxruntime, shaderloom\nshaderloom.install_as_onnxruntime()",
            id="installed late",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_alias_to_itself_does_not_recurse(program, alias):
    code = RUN_ON_CPU.format(model=program[1], session="onnxruntime.InferenceSession")
    result = execute("-c", f"{alias}\nimport onnxruntime\n{code}", SHADERLOOM_PROVIDERS="cpu")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "[[0.0, 0.0, 2.0]] onnxruntime\n"
    says_how = "under 'python -m shaderloom.as_onnxruntime PROGRAM.py'" in result.stderr
    assert says_how == ("install_as_onnxruntime" not in alias), "the mode is on where it is installed"
    assert ("onnxruntime was imported before" in result.stderr) == alias.startswith("import onnxruntime,")


@pytest.mark.slow
def test_a_file_of_the_program_with_the_name_does_not_recurse(program, tmp_path):
    (tmp_path / "onnxruntime.py").write_text("from shaderloom import *")
    code = RUN_ON_CPU.format(model=program[1], session="onnxruntime.InferenceSession")
    (tmp_path / "other.py").write_text(f"import onnxruntime\n{code}")
    result = execute(str(tmp_path / "other.py"))
    assert (result.returncode, result.stdout) == (0, "[[0.0, 0.0, 2.0]] onnxruntime\n"), result.stderr


@pytest.mark.slow
def test_processes_of_a_program_have_it_too(tmp_path):
    (tmp_path / "parent.py").write_text(
        "import multiprocessing, subprocess, sys, onnxruntime\n"
        "if __name__ == '__main__':\n"
        "    print('Shaderloom' in onnxruntime.get_build_info())\n"
        "    code = 'import onnxruntime; print(onnxruntime.__file__)'\n"
        "    print('stand_in' in subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout)\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print('Shaderloom' in pool.apply(onnxruntime.get_build_info))\n"
    )
    result = execute("-m", "shaderloom.as_onnxruntime", str(tmp_path / "parent.py"))
    assert (result.returncode, result.stdout) == (0, "True\nTrue\nTrue\n"), result.stderr


ABSENT = """
import importlib.util, onnxruntime
from shaderloom.api import real_onnxruntime
real_onnxruntime.is_installed = lambda: False
for statement in ("import onnxruntime.tools", "from onnxruntime import quantization", "onnxruntime.SparseTensor",
                  "from onnxruntime import SparseTensor", "import onnxruntime.training",
                  "import onnxruntime.backend"):
    try:
        exec(statement)
    except Exception as error:
        print(type(error).__name__, isinstance(error, (ImportError, AttributeError)), error)
print(importlib.util.find_spec("onnxruntime").name, hasattr(onnxruntime, "SparseTensor"))
"""


def test_what_is_absent_says_so():
    result = execute("-c", ABSENT, PYTHONPATH=environment()["PYTHONPATH"] + os.pathsep + str(ROOT))
    assert result.returncode == 0, result.stderr
    tools, quantization, name, imported, training, backend, last = result.stdout.splitlines()
    assert tools.startswith("AbsentModuleError True support: 'onnxruntime.tools' is not among the modules")
    assert tools.endswith("[pip install onnxruntime: its tools serve beside this package]")
    assert backend.endswith("[shaderloom.backend has the interface of onnx's backends]")
    assert quantization.startswith("AbsentModuleError True support: 'onnxruntime.quantization'")
    assert name.startswith("AbsentNameError True support: 'onnxruntime.SparseTensor' is not among the names")
    assert imported.startswith("ImportError True cannot import name 'SparseTensor'")
    assert training.startswith("ModuleNotFoundError True No module named 'onnxruntime.training'")
    assert last == "onnxruntime False"


#: onnxruntime's names for what this project has not: libraries of providers, sparse tensors, adapters, training
ABSENT_NAMES = set(
    """
    AdapterFormat LoraAdapter ModelCompiler ModelPackage ModelPackageComponentContext ModelPackageContext
    ModelPackageOptions ModelPackageWriteMode OrtAllocatorType OrtArenaCfg OrtCompileApiFlags OrtDevice
    OrtDeviceMemoryType OrtDeviceVendorId OrtEpAssignedNode OrtEpAssignedSubgraph OrtEpContextData
    OrtEpContextDataBuffer OrtEpDevice OrtExecutionProviderDevicePolicy OrtExternalInitializerInfo OrtHardwareDevice
    OrtHardwareDeviceType OrtMemType OrtMemoryInfo OrtMemoryInfoDeviceType OrtSparseFormat OrtSyncStream SparseTensor
    contextlib copy_tensors create_and_register_allocator create_and_register_allocator_v2 cuda_version
    import_capi_exception onnxruntime_validation package_name register_execution_provider_library
    set_default_logger_callback set_global_thread_pool_sizes unregister_execution_provider_library
    """.split()
)


def test_the_names_are_those_of_onnxruntime():
    result = execute("-c", "import onnxruntime; print(*dir(onnxruntime))", PYTHONPATH=environment()["PYTHONPATH"])
    ours = set(result.stdout.split())
    theirs = {name for name in dir(onnxruntime) if not name.startswith("_")}
    assert theirs - ours <= ABSENT_NAMES
    assert ours & ABSENT_NAMES == set()


def test_the_errors_are_those_of_onnxruntime():
    state = onnxruntime.capi.onnxruntime_pybind11_state
    theirs = {name for name, kind in vars(state).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert theirs == {name for name, kind in vars(onnxruntime_errors).items() if isinstance(kind, type)}


def test_names_of_sessions_in_the_mode():
    from shaderloom.as_onnxruntime.session import ProgramSession

    names = {name for name in dir(onnxruntime.InferenceSession) if not name.startswith("_")}
    absent = set(
        """
        get_tuning_results set_tuning_results set_ep_dynamic_options run_with_ortvaluevector get_input_epdevices
        get_input_memory_infos get_output_memory_infos get_output_epdevices get_provider_graph_assignment_info
        create_ortvalue_from_shape_and_type release_captured_graph
        """.split()
    )
    assert names - absent <= set(dir(ProgramSession))
    values = {name for name in dir(onnxruntime.OrtValue) if not name.startswith("_")}
    assert values - {"as_sparse_tensor"} <= set(dir(shaderloom.OrtValue))


def test_a_command_that_is_not_there_is_an_error():
    result = execute("-m", "shaderloom", "as-onnxruntime", "--", "surely-not-a-command", "--flag")
    assert result.returncode == 1
    assert result.stderr == (
        "error: input: cannot start 'surely-not-a-command': No such file or directory "
        "[name a program that is on the path]\n"
    )
    assert execute("-m", "shaderloom.as_onnxruntime").stderr.startswith("usage: python -m shaderloom.as_onnxruntime")
