"""Measurement of the subgroup size by a shader: WebGPU reports only a range."""

from __future__ import annotations

import struct
from typing import Any

_THREADS = 128
_PROBE = """
@group(0) @binding(0) var<storage, read_write> sizes: array<u32>;
@compute @workgroup_size(128)
fn main(@builtin(local_invocation_index) thread: u32, @builtin(subgroup_size) size: u32) {
  sizes[thread] = size | (subgroupBroadcast(thread, 0u) << 16u);
}
"""


def measure_subgroup_size(gpu: Any) -> int:
    """Measure the subgroup size of a device with the feature ``subgroup``.

    Returns 0 if subgroups are not runs of ``size`` neighbouring threads.  A kernel may use the number only in
    workgroups of exactly that many threads.
    """
    import wgpu

    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    buffer = gpu.create_buffer(size=4 * _THREADS, usage=usage)
    module = gpu.create_shader_module(code=_PROBE)
    pipeline = gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    group = gpu.create_bind_group(
        layout=pipeline.get_bind_group_layout(0),
        entries=[{"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": 4 * _THREADS}}],
    )
    encoder = gpu.create_command_encoder()
    run = encoder.begin_compute_pass()
    run.set_pipeline(pipeline)
    run.set_bind_group(0, group)
    run.dispatch_workgroups(1)
    run.end()
    gpu.queue.submit([encoder.finish()])
    answers = struct.unpack(f"<{_THREADS}I", gpu.queue.read_buffer(buffer))
    buffer.destroy()
    size = answers[0] & 0xFFFF
    if not size or any(answer != size | (thread // size * size) << 16 for thread, answer in enumerate(answers)):
        return 0
    return size
