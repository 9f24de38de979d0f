"""Uniforms hidden from a driver that inlines them: Mesa's lavapipe compiles a shader anew for their values.

Mesa's nir_find_inlinable_uniforms takes a loop whose bound is computed from uniforms and constants alone.  Bit 31 of
the number of a workgroup is zero, which only the device knows.  ``main`` adds it, and uniform control flow stays so in
``main``, which reads a value of its own: a private variable, which other functions read, is never uniform to Tint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAIN = re.compile(r"fn main\([^{]*\{")
_BUILTIN = re.compile(r"@builtin\((\w+)\) (\w+): vec3<u32>")
_UNIFORM_FIRST = ("workgroup_id", "num_workgroups", "global_invocation_id")


def hide(wgsl: str, uniform: str, private: str, fields: Sequence[str]) -> str:
    """Return the text with the i32 ``fields`` of the ``uniform`` read from a variable ``private``, in ``main`` from a
    value.

    The uniform is named as its struct is, but for the first letter.  ``main`` copies each field with a zero added.
    """
    struct = uniform.capitalize()
    head = _MAIN.search(wgsl)
    assert head is not None, "a shader has an entry point"
    builtins = dict(_BUILTIN.findall(head[0]))
    number = next(builtins[name] for name in _UNIFORM_FIRST if name in builtins)
    zero = f"zero_of_{uniform}"
    values = ", ".join(f"{uniform}.{field} + {zero}" for field in fields)
    own = f"{private}_of_main"
    start = f"\n  let {zero} = i32({number}.z >> 31u);\n  let {own} = {struct}({values});\n  {private} = {own};"
    reads = re.compile(rf"\b{uniform}\.({'|'.join(map(re.escape, fields))})\b")
    end = _closing_brace(wgsl, head.end())
    before, body, behind = wgsl[: head.end()], wgsl[head.end() : end], wgsl[end:]
    others = rf"{private}.\1"
    hidden = reads.sub(others, before) + start + reads.sub(rf"{own}.\1", body) + reads.sub(others, behind)
    return hidden.replace(f"struct {struct}", f"var<private> {private}: {struct};\nstruct {struct}", 1)


def _closing_brace(text: str, start: int) -> int:
    """Return the place of the brace that closes the one before ``start``."""
    depth = 1
    for brace in re.finditer("[{}]", text[start:]):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return start + brace.start()
    raise ValueError("a function does not end")
