"""C types of wgpu-native: those of the fast look-up and of the table are the header's.

Covers: runtime/device/native_types, runtime/device/native_table.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import _cffi_backend
import cffi
import pytest
import wgpu

from shaderloom.runtime.device import native_table, native_types

HEADER = (Path(wgpu.__file__).parent / "resources" / "combined_header.h").read_text()
LIBRARY = str(next((Path(wgpu.__file__).parent / "resources").glob("*wgpu_native*")))
TYPES = (
    "WGPUBufferDescriptor *",
    "WGPUComputeState *",
    "WGPUChainedStruct * ",
    "WGPUCommandBuffer[]",
    "WGPUFeatureName[]",
    "WGPUBindGroupEntry[]",
    "WGPUDevice",
    "char []",
    "uint8_t []",
    "uint8_t *",
    "uintptr_t",
    "intptr_t",
    "void *",
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
)


@pytest.fixture(scope="module")
def parsed():
    ffi = cffi.FFI()
    ffi.cdef(HEADER)
    return ffi


@pytest.mark.parametrize("text", TYPES)
def test_the_fast_look_up_gives_the_types_of_the_parser(parsed, text):
    assert native_types.install(parsed), "the pinned cffi must be understood"
    model = parsed._parser.parse_type(text)
    with parsed._lock:
        slow = parsed._get_cached_btype(model.as_function_pointer() if model.is_raw_function else model)
    assert native_types.find_type(parsed, text) == (slow, model.is_raw_function)


def test_other_types_are_left_to_the_parser(parsed):
    for text in ("WGPUNothing *", "int[3]", "void(*)(int)", "void(WGPUNothing)", b"char *"):
        assert native_types.find_type(parsed, text) is None
    assert parsed.sizeof("int[3]") == 12
    assert not native_types.install(object())


def plain(name):
    """The name of a C type without what a header without ``typedef`` would need."""
    return re.sub(r"\b(struct|enum|union) ", "", name)


def assert_same(mine, other, seen=()):
    """Compare C types by what they are made of; cffi aborts if one without fields is asked for them."""
    assert (mine.kind, plain(mine.cname)) == (other.kind, plain(other.cname))
    if other.cname in seen:
        return
    seen = (*seen, other.cname)
    if other.kind in ("pointer", "array"):
        assert_same(mine.item, other.item, seen)
    elif other.kind == "function":
        for one, another in zip((mine.result, *mine.args), (other.result, *other.args), strict=True):
            assert_same(one, another, seen)
    elif other.kind in ("struct", "union") and other.fields is not None:
        for (name, field), (others, another) in zip(mine.fields, other.fields, strict=True):
            assert (name, field.offset) == (others, another.offset)
            assert_same(field.type, another.type, seen)
    elif other.kind == "enum":
        assert mine.elements == other.elements


def constant(library, name):
    """The value of a constant; None for one whose value is an expression, which cffi knows in neither form."""
    try:
        return getattr(library, name)
    except (NotImplementedError, _cffi_backend.FFI.error):
        return None


def test_a_table_is_what_was_parsed(parsed):
    table = native_table.read_table(native_table.table_of(parsed), HEADER)
    table.cdef(HEADER)
    mine, others = table.dlopen(LIBRARY), parsed.dlopen(LIBRARY)
    assert dir(mine) == dir(others)
    assert len(dir(mine)) > 500
    assert sorted(map(len, table.list_types())) == sorted(map(len, parsed.list_types()))
    for name in [name for name in dir(others) if not name.startswith("wgpu")]:
        assert constant(mine, name) == constant(others, name), name
    for text in [*parsed.list_types()[0], *(text.replace("void(", "void(*)(") for text in TYPES)]:
        assert_same(table.typeof(text), parsed.typeof(text))
    for name in [name for name in dir(others) if name.startswith("wgpu")]:
        assert_same(table.typeof(getattr(mine, name)), parsed.typeof(getattr(others, name)))


_START = """
import sys
if sys.argv[1]:
    from shaderloom.runtime.device import native_table
    native_table._read_header = lambda: "int other;"
import _cffi_backend
import cffi
parser = cffi.FFI
from shaderloom.runtime.device import native
assert cffi.FFI is parser
import wgpu
assert wgpu.gpu.enumerate_adapters_sync() is not None
print("pycparser" in sys.modules, type(native.ffi).__name__, native.AVAILABLE)
"""


@pytest.mark.slow  # each process imports wgpu
def test_the_second_process_does_not_parse(tmp_path):
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def start(other=""):
        command = [sys.executable, "-c", _START, other]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert start() == ["True", "FFI", "True"]
    assert start() == ["False", "Table", "True"]
    (file,) = tmp_path.rglob("wgpu_header*")
    right = file.read_bytes()
    file.write_bytes(right[:-1])
    assert start() == ["True", "FFI", "True"]
    assert file.read_bytes() == right
    assert start("for another header") == ["True", "FFI", "True"]  # writes a table that is not what wgpu-py declares
    assert start("for another header") == ["True", "FFI", "True"]
