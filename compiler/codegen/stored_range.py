"""The text of a kernel that stores the range of its result (:mod:`..planning.kernel_ranges`).

The template's entry point becomes a function, whose threads may return early, and an entry point around it stores what
they left in the registers of the range.
"""

from __future__ import annotations

import re

from .spec import RangeForm
from .templates import environment, kernel_file

_ENTRY_POINT = re.compile(r"@compute @workgroup_size\(\d+\)\nfn main\((.*?)\) \{\n", re.DOTALL)
_PARAMETER = re.compile(r"@builtin\((\w+)\) (\w+): ([\w<>]+)")

#: What the entry point reads itself
_BUILTINS = {"local_invocation_index": "u32", "workgroup_id": "vec3<u32>", "num_workgroups": "vec3<u32>"}


def with_stored_range(wgsl: str, form: RangeForm, threads: int) -> str:
    """Return a kernel's text with an entry point that stores ranges, of workgroups or of threads."""
    entry = _ENTRY_POINT.search(wgsl)
    assert entry is not None, "a template has one entry point"
    parameters = [(match[1], match[2], match[3]) for match in _PARAMETER.finditer(entry[1])]
    builtins = {**_BUILTINS, **{builtin: kind for builtin, _, kind in parameters}}
    head = f"fn compute_results({', '.join(f'{name}: {kind}' for _, name, kind in parameters)}) {{\n"
    entry_point = (
        environment()
        .get_template(kernel_file("stored_range"))
        .render(
            builtins=builtins,
            arguments=[builtin for builtin, _, _ in parameters],
            shares=form is RangeForm.WORKGROUP,
            threads=threads,
        )
    )
    return wgsl[: entry.start()] + head + wgsl[entry.end() :].rstrip("\n") + "\n" + entry_point
