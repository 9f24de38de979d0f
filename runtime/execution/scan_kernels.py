"""The kernels of scans: which elements of several tensors are not finite, and what that makes of a run.

A *judge* is one workgroup, the last of a run: it looks at small outputs, at small inputs only where an output calls for
it, and adds the run to the tally.  Larger tensors have workgroups of their own before that.
"""

from __future__ import annotations

import hashlib
from functools import cache

from ..plan.plan import Binding, Kernel

#: What an element may be, as bits of a kind
INFINITE, MINUS_INFINITE, NOT_A_NUMBER = 1, 2, 4
ANY_KIND = INFINITE | MINUS_INFINITE | NOT_A_NUMBER
#: Kinds of elements that an ordinary input does not have
EXTRAORDINARY = INFINITE | NOT_A_NUMBER
#: Bytes of a ``Part``, and buffers of a kernel besides the tensors
PART_BYTES, OTHER_BUFFERS = 36, 3
#: Threads of a workgroup that scans, and of one that judges
SCAN_THREADS, JUDGE_THREADS = 64, 256

_COMMON = """
struct Part {
    first: u32, words: u32, last: u32, slot: u32, allowed: u32, low: u32, high: u32, is_input: u32, is_wide: u32
}
"""

_FUNCTIONS = f"""
fn kind(bits: u32, exponent: u32, sign: u32) -> u32 {{
    if (bits & exponent) != exponent {{ return 0u; }}
    if (bits & ~(exponent | sign)) != 0u {{ return {NOT_A_NUMBER}u; }}
    return select({INFINITE}u, {MINUS_INFINITE}u, (bits & sign) != 0u);
}}
fn kinds(word: u32, part: Part) -> u32 {{
    if part.is_wide != 0u {{ return kind(word, part.high, 0x80000000u); }}
    return kind(word & 0xffff0000u, part.high, 0x80000000u) | kind(word & 0xffffu, part.low, 0x8000u);
}}
fn note(part: Part, seen: u32) {{
    if seen == 0u {{ return; }}
    atomicOr(&flags[1u + part.slot], seen);
    if part.is_input == 0u && (seen & ~part.allowed) != 0u {{ atomicOr(&flags[0], 1u); }}
}}
"""

# An exponent of ones carries into the place of the sign.  The last word may have a half too many.
_TENSOR = """
@group(0) @binding(NUMBER) var<storage, read> xNUMBER: array<u32>;
fn scan_NUMBER(part: Part, thread: u32, threads: u32) -> u32 {
    let end = part.first + part.words - 1u;
    let exponents = part.low | part.high;
    let carry = exponents & ~(exponents << 1u);
    var carried = vec4(0u);
    for (var i = part.first + thread; i < end; i += 4u * threads) {
        let near = min(vec3(i) + vec3(1u, 2u, 3u) * threads, vec3(end));
        let words = vec4(xNUMBER[i], xNUMBER[near.x], xNUMBER[near.y], xNUMBER[near.z]);
        carried |= (words & vec4(exponents)) + vec4(carry);
    }
    var seen = kinds(xNUMBER[end] & part.last, part);
    if any((carried & vec4(~exponents & (exponents << 1u))) != vec4(0u)) {
        for (var i = part.first + thread; i < end; i += threads) { seen |= kinds(xNUMBER[i], part); }
    }
    return seen;
}
"""

_SCAN = f"""
@compute @workgroup_size({SCAN_THREADS}) fn main(
    @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) index: u32
) {{
    let part = parts[group.y];
    if part.is_input != 0u && atomicLoad(&flags[0]) == 0u {{ return; }}
    note(part, scan(group.y, part, group.x * {SCAN_THREADS}u + index, groups.x * {SCAN_THREADS}u));
}}
"""

_JUDGE = f"""
fn scan_all(is_input: u32, thread: u32) {{
    for (var number = 0u; number < TENSORSu; number++) {{
        let part = parts[number];
        if part.is_input == is_input {{ note(part, scan(number, part, thread, {JUDGE_THREADS}u)); }}
    }}
}}
@compute @workgroup_size({JUDGE_THREADS}) fn main(@builtin(local_invocation_index) thread: u32) {{
    scan_all(0u, thread);
    storageBarrier();
    if atomicLoad(&flags[0]) != 0u {{ scan_all(1u, thread); }}
    storageBarrier();
    if thread != 0u {{ return; }}
    let outputs = arrayLength(&tally) - 3u;
    var ordinary = true;
    for (var i = 1u + outputs; i < arrayLength(&flags); i++) {{
        ordinary = ordinary && (atomicLoad(&flags[i]) & {EXTRAORDINARY}u) == 0u;
    }}
    tally[0] += 1u;
    if atomicLoad(&flags[0]) != 0u && ordinary {{
        if tally[1] == 0u {{ tally[2] = tally[0]; }}
        tally[1] += 1u;
        for (var i = 0u; i < outputs; i++) {{ tally[3u + i] |= atomicLoad(&flags[1u + i]); }}
    }}
    for (var i = 0u; i < arrayLength(&flags); i++) {{ atomicStore(&flags[i], 0u); }}
}}
"""


@cache
def scan_kernel(tensors: int) -> Kernel:
    """Return a kernel that scans each of ``tensors`` with the workgroups of one y; its last bindings are the parts and
    the flags.
    """
    return _kernel("finite scan", tensors, _SCAN, SCAN_THREADS, Binding("flags", "read_write", "atomic<u32>"))


@cache
def judge_kernel(tensors: int) -> Kernel:
    """Return a kernel of one workgroup that scans ``tensors`` and adds the run to the tally, its last binding."""
    flags, tally = Binding("flags", "read_write", "atomic<u32>"), Binding("tally", "read_write", "u32")
    return _kernel("finite judge", tensors, _JUDGE, JUDGE_THREADS, flags, tally)


def _kernel(name: str, tensors: int, main: str, threads: int, *written: Binding) -> Kernel:
    numbers = range(tensors)
    cases = "".join(f"case {number}u: {{ return scan_{number}(part, thread, threads); }}\n" for number in numbers)
    bindings = [Binding("parts", "read", "Part"), *written]
    declared = "".join(
        f"@group(0) @binding({tensors + place}) var<storage, {each.access}> {each.name}: array<{each.element}>;\n"
        for place, each in enumerate(bindings)
    )
    wgsl = (
        f"{_COMMON}{declared}{_FUNCTIONS}"
        + "".join(_TENSOR.replace("NUMBER", str(number)) for number in numbers)
        + "fn scan(number: u32, part: Part, thread: u32, threads: u32) -> u32 {\n"
        + f"switch number {{\n{cases}default: {{ return 0u; }}\n}}\n}}\n"
        + main.replace("TENSORS", str(tensors))
    )
    tensor_bindings = (Binding(f"x{number}", "read", "u32") for number in numbers)
    key = hashlib.sha256(wgsl.encode()).hexdigest()
    return Kernel(key, name, wgsl, (threads, 1, 1), (*tensor_bindings, *bindings))
