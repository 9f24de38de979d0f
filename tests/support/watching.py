"""Plans whose kernels report every array index that is out of range, storage and workgroup memory alike.

The text of a kernel is changed after it was generated, so this knows nothing of how indices are made or bounded.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import replace

import onnx

from shaderloom.runtime.device.device import Device
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.memory.source_files import SourceFiles
from shaderloom.runtime.plan.caps import Caps, MemoryAccount
from shaderloom.runtime.plan.plan import Binding, Kernel, Plan, Range

from .running import Feeds

_WORKGROUP = re.compile(r"var<workgroup> (\w+): (array<.*>);")
_SIZE = re.compile(r", (\d+)>")
REPORT = "outside_report"


def watched(kernel: Kernel) -> Kernel:
    """The kernel with one more binding: a counter of indices out of range."""
    text = kernel.wgsl
    functions = []
    for binding in kernel.bindings:
        if binding.access != "uniform":
            text = _watch(text, binding.name, 1)
            functions.append(_function(binding.name, 0, f"arrayLength(&{binding.name})"))
    for name, declared in _WORKGROUP.findall(kernel.wgsl):
        sizes = list(reversed(_SIZE.findall(declared)))
        text = _watch(text, name, len(sizes))
        functions += [_function(name, level, f"{size}u") for level, size in enumerate(sizes)]
    number = len(kernel.bindings)
    declaration = f"@group(0) @binding({number}) var<storage, read_write> {REPORT}: array<atomic<u32>>;\n"
    text = declaration + text + "\n".join(functions)
    key = hashlib.sha256(text.encode()).hexdigest()
    bindings = (*kernel.bindings, Binding(REPORT, "read_write", "atomic<u32>"))
    return replace(kernel, key=key, wgsl=text, bindings=bindings)


def _function(name: str, level: int, size: str) -> str:
    return (
        f"fn inside_{name}_{level}(i: i32) -> i32 {{\n"
        f"  if (i < 0 || u32(i) >= {size}) {{ atomicAdd(&{REPORT}[0], 1u); return 0; }}\n  return i;\n}}\n"
    )


def _watch(text: str, name: str, levels: int) -> str:
    """Every ``name[index]``, and of nested arrays the next index too, through a function that looks at the index."""
    pieces, at = [], 0
    for found in re.finditer(rf"\b{name}\[", text):
        if found.start() < at:
            raise AssertionError(f"an index of {name} reads {name} itself")
        start = found.end() - 1
        pieces.append(text[at:start])
        for level in range(levels):
            end = _closing(text, start)
            pieces.append(f"[inside_{name}_{level}(i32({text[start + 1 : end]}))]")
            start = end + 1
        at = start
    return "".join([*pieces, text[at:]])


def _closing(text: str, opening: int) -> int:
    depth = 0
    for place in range(opening, len(text)):
        depth += {"[": 1, "]": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise AssertionError("a bracket is not closed")


def count_outside(device: Device, plan: Plan, model: onnx.ModelProto, feeds: Feeds) -> int:
    """Run the plan and give the number of indices out of range that its calls used."""
    kernels = {kernel.key: watched(kernel) for kernel in plan.kernels}
    report = Range(f"arena:{len(plan.arenas)}", 0, 16)
    commands = tuple(
        replace(
            command,
            calls=tuple(
                replace(call, kernel=kernels[call.kernel].key, ranges=(*call.ranges, report)) for call in command.calls
            ),
        )
        for command in plan.commands
    )
    changed = replace(plan, kernels=(*plan.kernels, *kernels.values()), commands=commands, arenas=(*plan.arenas, 16))
    pool = WeightPool(device, SourceFiles(None, model.SerializeToString(), {}), MemoryAccount(Caps().device_memory))
    try:
        with Executor(device, changed, pool) as executor:
            executor.run(feeds)
            data = device.queue.read_buffer(executor._buffers[report.buffer].gpu)
    finally:
        pool.close()
    return int(struct.unpack("<I", bytes(data[:4]))[0])
