"""NVIDIA's GPUs: measured on an H200 (docs/performance.md)."""

from __future__ import annotations

from ..target import AttentionCosts, SplitCosts, Target, WorkgroupCosts

TARGET = Target(
    name="NVIDIA",
    adapters=("nvidia",),
    is_software=False,
    costs=WorkgroupCosts(
        multiprocessors=132,
        tiles={
            (16, 64, 32, 4, 1, 2, 4): (25.2, 42.4, 56.2, 72.6, 142.1),
            (32, 32, 32, 4, 1, 2, 4): (24.7, 41.3, 55.9, 72.4, 138.6),
            (32, 32, 16, 4, 1, 1, 4): (38.0, 39.8, 57.1, 70.4, 132.1),
            (32, 64, 32, 8, 1, 2, 4): (35.5, 58.0, 78.1, 149.4, 224.6),
            (32, 64, 32, 8, 2, 2, 4): (52.2, 57.9, 88.6, 113.0, 211.1),
            (32, 64, 16, 4, 1, 1, 4): (40.8, 65.1, 89.6, 119.0, 231.8),
            (32, 128, 32, 8, 2, 2, 4): (57.0, 94.0, 182.7, 185.0, 355.0),
            (64, 32, 16, 4, 1, 1, 4): (41.1, 69.7, 96.1, 124.2, 240.8),
            (64, 64, 16, 8, 2, 1, 4): (84.9, 91.5, 150.7, 165.6, 327.0),
            (64, 64, 16, 4, 2, 1, 4): (63.1, 107.8, 153.0, 195.9, 378.4),
            (64, 64, 64, 8, 2, 4, 4): (61.4, 115.9, 171.3, 228.6, 447.5),
            (64, 128, 16, 8, 2, 1, 4): (91.3, 165.1, 228.6, 438.6, 652.4),
            (128, 128, 16, 8, 2, 1, 4): (160.8, 295.8, 443.6, 579.3, 1135.6),
            (128, 128, 16, 8, 2, 1, 0): (167.6, 303.1, 591.0, 595.6, 1172.9),
        },
        byte_tiles={
            (16, 64, 32, 4, 1, 2, 4): (3.4, 37.0, 61.0, 80.0, 100.0, 177.0),
            (32, 32, 32, 4, 1, 2, 4): (3.4, 38.0, 62.0, 80.0, 100.0, 175.0),
            (32, 64, 32, 8, 1, 2, 4): (3.4, 63.0, 95.0, 135.0, 177.0, 338.0),
            (32, 64, 16, 4, 1, 1, 4): (3.4, 95.0, 118.0, 157.0, 197.0, 323.0),
            (64, 64, 16, 4, 1, 1, 4): (3.5, 123.0, 184.0, 260.0, 315.0, 590.0),
            (128, 128, 16, 8, 2, 1, 4): (24.0, 245.0, 484.0, 726.0, 968.0, 1935.0),
        },
        sharing=(1, 2, 3, 4, 8),
        steps=1536,
        written_out=2,
        large_tile=16,
        long_product=100_000,
        busy_threads=64,
        split=SplitCosts(parts=(2, 4, 8), least_extent=32, second_pass=4.5, byte=0.5e-6, gain=0.9),
        attention=AttentionCosts(byte=1 / 21, merge=5700.0, merge_part=100.0, parts=128),
    ),
    max_loop_trips=None,
    repaid_runs=0,
    repaid_range_runs=0,
    group_threads=64,
    busy_workgroups=128,
    busy_workgroup_threads=512,
    neighbours=32,
    has_cheap_barriers=True,
    prefers_long_words=False,
    converts_halves=True,
    by_bits=(),
    multiplies_bytes=True,
    prefers_written_out_loops=True,
    # about one workgroup starts in a nanosecond, which bounds the rate of many small ones; few spread better
    inlines_uniforms=False,
    wide_map_threads=1 << 17,
    narrow_recurrent_units=64,
    stepped_recurrent_units=128,
)
