"""Uniforms hidden from a driver that inlines them: Mesa's lavapipe compiles a shader anew for their values.

Mesa's nir_find_inlinable_uniforms takes a loop whose bound is computed from uniforms and constants alone.  Bit 31 of
the number of a workgroup is zero, which only the device knows, and uniform control flow stays so where ``main`` adds
it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAIN = re.compile(r"fn main\([^{]*\{")
_BUILTIN = re.compile(r"@builtin\((\w+)\) (\w+): vec3<u32>")
_UNIFORM_FIRST = ("workgroup_id", "num_workgroups", "global_invocation_id")


def hide(wgsl: str, uniform: str, private: str, fields: Sequence[str]) -> str:
    """Return the text with the i32 ``fields`` of the ``uniform`` read from a variable ``private``.

    The uniform is named as its struct is, but for the first letter.  ``main`` copies each field with a zero added.
    """
    struct = uniform.capitalize()
    head = _MAIN.search(wgsl)
    assert head is not None, "a shader has an entry point"
    builtins = dict(_BUILTIN.findall(head[0]))
    number = next(builtins[name] for name in _UNIFORM_FIRST if name in builtins)
    zero = f"zero_of_{uniform}"
    values = ", ".join(f"{uniform}.{field} + {zero}" for field in fields)
    start = f"{head[0]}\n  let {zero} = i32({number}.z >> 31u);\n  {private} = {struct}({values});"
    reads = re.compile(rf"\b{uniform}\.({'|'.join(map(re.escape, fields))})\b")
    hidden = reads.sub(rf"{private}.\1", wgsl).replace(head[0], start)
    return hidden.replace(f"struct {struct}", f"var<private> {private}: {struct};\nstruct {struct}", 1)
