"""Peak rates of a device: bytes and floating-point operations a second, each measured by a kernel of little else.

The two numbers are the device's *roofline* (Williams, Waterman, Patterson, 2009): a kernel of ``flops`` operations on
``bytes`` bytes takes at least ``max(flops / peak flops, bytes / peak bytes)`` seconds.
"""

from __future__ import annotations

import hashlib

from ..device.device import Device
from ..plan.caps import Caps, MemoryAccount
from ..plan.plan import Binding, ComputePass, Kernel, KernelCall, Plan, Range
from ..plan.record import record
from .executor import Executor
from .weight_pool import WeightPool

#: Best of so many runs
RUNS = 5
_THREADS = 64
_CHAINS = 8  #: independent multiply-adds of vectors a thread: enough to hide their latency
_STEPS = 128

_COPY = """
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size(64) fn main(
    @builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>
) {
    for (var i = id.x; i < arrayLength(&x); i += groups.x * 64u) { y[i] = x[i]; }
}
"""

#: ``x`` is zero, so the numbers stay finite; the sum is stored, so that nothing can be left out
_MULTIPLY_ADD = (
    """
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let a = x[id.x % 16u];
    let b = x[id.x % 16u + 16u];
"""
    + "".join(f"    var c{chain} = a + vec4<f32>({chain}.0);\n" for chain in range(_CHAINS))
    + f"    for (var i = 0u; i < {_STEPS}u; i++) {{\n"
    + "".join(f"        c{chain} = fma(c{chain}, a, b);\n" for chain in range(_CHAINS))
    + "    }\n    y[id.x] = "
    + " + ".join(f"c{chain}" for chain in range(_CHAINS))
    + ";\n}\n"
)


@record
class Roofline:
    """Peaks of a device.  ``method`` is how they were timed; see :class:`~.timing.Profile`."""

    bytes_per_second: float
    flops_per_second: float
    method: str

    def least_seconds(self, flops: float, moved: float) -> float:
        """Return the lower bound of the time in seconds that a kernel of this work takes."""
        return max(flops / self.flops_per_second, moved / self.bytes_per_second)


def measure_roofline(device: Device) -> Roofline:
    """Measure the device; takes tens of milliseconds on a GPU and about a second on a software driver."""
    software = device.profile.is_software
    size = (16 if software else 256) << 20
    size = min(size, device.profile.limit("max-storage-buffer-binding-size"))
    threads = 1 << (12 if software else 20)
    flops = threads * _STEPS * _CHAINS * 4 * 2
    plan = _plan(size, threads)
    account = MemoryAccount(Caps().device_memory)
    pool = WeightPool(device, lambda source: b"", account)
    try:
        with Executor(device, plan, pool) as executor:
            profiles = [executor.profile({}) for _ in range(RUNS)]
    finally:
        pool.close()
    copied, computed = (max(min(profile.calls[call].nanoseconds for profile in profiles), 1) for call in (0, 1))
    return Roofline(2 * size / copied * 1e9, flops / computed * 1e9, profiles[0].method)


def _plan(size: int, threads: int) -> Plan:
    kernels = [_kernel("copy", _COPY), _kernel("multiply_add", _MULTIPLY_ADD)]
    groups = min(size // 16 // _THREADS, 65535)
    grids = [(groups, 1, 1), (threads // _THREADS, 1, 1)]
    calls = tuple(
        KernelCall(kernel.key, (Range("arena:0", 0, size), Range("arena:1", 0, size)), grid, (), kernel.template)
        for kernel, grid in zip(kernels, grids)
    )
    return Plan("roofline", (), (), (), tuple(kernels), (), (), (ComputePass(calls),), (size, size))


def _kernel(name: str, wgsl: str) -> Kernel:
    bindings = (Binding("x", "read", "vec4<f32>"), Binding("y", "read_write", "vec4<f32>"))
    key = hashlib.sha256(wgsl.encode()).hexdigest()
    return Kernel(key, name, wgsl, (_THREADS, 1, 1), bindings)
