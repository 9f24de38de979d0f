"""lavapipe, the software driver of Mesa for Vulkan, whose shaders llvmpipe compiles: measured on two cores with AVX2
(docs/performance.md).  Mesa's llvmpipe for OpenGL is the same compiler, without subgroups and 64-bit words."""

from __future__ import annotations

from ..target import BroadcastCosts, DepthwiseCosts, RegisterCosts, Target, ThreadCosts, WinogradCosts

COSTS = ThreadCosts(
    cores=2,
    start=2000.0,
    register=RegisterCosts(load=120.0, multiply=7.0, compile_accumulator=20e6, accumulators=32),
    # compiling more than 64 accumulators takes LLVM many seconds
    broadcast=BroadcastCosts(load=101.0, multiply=4.0, compile_load=10e6, compile_multiply=15e6, accumulators=64),
    depthwise=DepthwiseCosts(load=110.0, store=160.0, multiply=5.0, compile_load=20e6, compile_multiply=1e6, loads=80),
    winograd=WinogradCosts(load=120.0, store=160.0, compile=400e6),
)

TARGET = Target(
    name="lavapipe",
    adapters=("llvmpipe", "lavapipe"),
    is_software=True,
    costs=COSTS,
    max_loop_trips=65_535,  # llvmpipe counts the trips of all loops and leaves them then, without an error
    repaid_runs=300,
    repaid_range_runs=300,
    group_threads=8,
    busy_workgroups=128,
    busy_workgroup_threads=512,
    neighbours=0,
    has_cheap_barriers=False,
    prefers_long_words=True,
    converts_halves=True,
    transforms_bytes=False,
    by_bits=("pack_float16", "round_float16", "unpack_float16"),
    multiplies_bytes=False,
    prefers_written_out_loops=False,
    inlines_uniforms=True,  # Mesa's lavapipe: milliseconds of its own compiler for each dispatch
    wide_map_threads=None,
    narrow_recurrent_units=255,
    stepped_recurrent_units=64,
)
