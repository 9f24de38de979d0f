"""Compute types as WGSL has them."""

from __future__ import annotations

#: Compute types that have a vec4 form
VECTOR_TYPES = frozenset({"f32", "i32", "u32", "bool"})
#: The WGSL name of each compute type
WGSL_TYPES = {"f32": "f32", "i32": "i32", "u32": "u32", "bool": "bool", "i64": "vec2<u32>", "u64": "vec2<u32>"}


def wgsl_type(dtype: str, lanes: int) -> str:
    """Return the WGSL type of a value of one or four lanes."""
    return WGSL_TYPES[dtype] if lanes == 1 else f"vec4<{WGSL_TYPES[dtype]}>"
