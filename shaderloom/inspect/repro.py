"""One kernel of a plan as a script that runs on its own: for bug reports and for tuning.

The script has the shader, the operands that the kernel had in a run (packed), the result that it gave, and the ONNX
nodes that it computes.  It needs numpy and wgpu, not this project.  It compares with the recorded result and times the
kernel: change the shader in it and run it again.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plans.describe import find_kernels
from ..plans.instrument import copy_call, copy_kernel, output_range
from ..runtime.execution.executor import Executor
from ..runtime.plan.dimension import evaluate
from ..runtime.plan.errors import InputError, LimitError
from ..runtime.plan.plan import DeviceStep, Plan, Port, uniform_values
from .report.annotate import annotated, comments, plain, tensor_text

if TYPE_CHECKING:
    from ..runtime.device.device import Device
    from ..runtime.execution.weight_pool import WeightPool

#: Bytes that the operands of a script may have: it is meant to be sent to somebody
LARGEST = 64 << 20


def find_call(plan: Plan, kernel: str | None, call: int | None) -> int:
    """The number of the call that is meant: ``call`` itself, or the first of a kernel.

    Raises :class:`InputError` if there is none, or neither is given.
    """
    if call is not None:
        if not 0 <= call < len(plan.calls):
            raise InputError(f"the plan has no call {call}", hint=f"it has {len(plan.calls)}, see inspect")
        return call
    if kernel is None:
        raise InputError("which kernel?", hint="give --kernel or --call; inspect lists them")
    keys = {found.key for found in find_kernels(plan, kernel)}
    for number, item in enumerate(plan.calls):
        if item.kernel in keys:
            return number
    raise InputError(f"no call of a run has the kernel '{kernel}'", hint="inspect lists them")


def find_node(plan: Plan, node: str) -> int | None:
    """The first call that computes an ONNX node, by its name or by its text in plans; None if there is none."""
    for number, item in enumerate(plan.calls):
        if any(node == origin or f" '{node}' (" in origin for origin in item.origins):
            return number
    return None


def make_script(
    device: Device, plan: Plan, pool: WeightPool, feeds: Mapping[str, np.ndarray], number: int, *, title: str
) -> str:
    """The script of call ``number``, with what it read and wrote in a run on these inputs.

    Raises :class:`LimitError` if the operands are too large to be put into a script.
    """
    from ..plans.profiling import symbol_values

    symbols = symbol_values(plan, feeds)
    call = plan.calls[number]
    operands = [plan.facts.tensors[tensor] for tensor in plan.facts.calls[number].operands]
    grid = [evaluate(size, symbols) for size in call.grid]
    if 0 in grid:
        raise InputError(f"call {number} does nothing for these inputs: a tensor of it is empty", hint="choose another")
    kernel = next(found for found in plan.kernels if found.key == call.kernel)
    total = sum(evaluate(item.size, symbols) for item in call.ranges)
    if total > LARGEST:
        raise LimitError(
            f"the kernel's tensors take {total:,} bytes, more than the {LARGEST:,} that a script may hold",
            hint="use smaller inputs",
        )
    before, after = _record(device, plan, pool, feeds, number, symbols)
    bindings = []
    for position, (binding, item) in enumerate(zip(kernel.bindings, call.ranges)):
        described = "dynamic dimensions"
        if position < len(operands):
            described = plain(tensor_text(operands[position]))
        bindings.append(
            {
                "name": binding.name,
                "access": binding.access,
                "description": described,
                "size": max(evaluate(item.size, symbols), 16),
                "data": _packed(before[position]),
            }
        )
    return _template().render(
        title=plain(title),
        number=number,
        kernel=kernel.id,
        template=kernel.template,
        config=dict(kernel.config),
        origins=[plain(origin) for origin in call.origins],
        adapter=plain(device.name),
        features=list(kernel.features),
        wgsl=annotated(kernel.wgsl, comments(plan, number)),
        bindings=bindings,
        grid=grid,
        flops=evaluate(call.flops, symbols),
        output=len(operands) - 1,
        expected=_packed(after),
        dtype=_output_dtype(operands[-1].dtype),
    )


def _template() -> Any:
    import jinja2

    text = (resources.files(__package__) / "report" / "repro.py.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["python"] = repr
    return environment.from_string(text)


def _packed(data: np.ndarray) -> list[str]:
    """Bytes as base64 of zlib, in lines."""
    text = base64.b64encode(zlib.compress(data.tobytes(), 9)).decode("ascii")
    return [text[start : start + 110] for start in range(0, len(text), 110)] or [""]


def _output_dtype(name: str) -> str:
    """A numpy type to compare in; words where numpy has no such type."""
    return name if name in np.sctypeDict else "uint16" if name == "bfloat16" else "uint32"


def _record(
    device: Device,
    plan: Plan,
    pool: WeightPool,
    feeds: Mapping[str, np.ndarray],
    number: int,
    symbols: Mapping[str, int],
) -> tuple[list[np.ndarray], np.ndarray]:
    """The words of every binding before the call, and those of the result after it."""
    call = plan.calls[number]
    recorded = _recording(plan, number)
    names = [port.name for port in recorded.outputs if port.name.startswith("binding ") or port.name == "result"]
    with Executor(device, recorded, pool) as executor:
        found = executor.run(feeds, names)
    before = []
    for position, item in enumerate(call.ranges):
        if item.buffer == "symbols":
            before.append(np.asarray(uniform_values(plan.symbols, symbols), np.int32))
        else:
            before.append(found[f"binding {position}"])
    return before, found["result"]


def _recording(plan: Plan, number: int) -> Plan:
    """``plan`` up to one call, with copies of all that it binds before it, and of its result after it."""
    call = plan.calls[number]
    copies, outputs = [], []
    for position, item in enumerate(call.ranges):
        if item.buffer == "symbols":
            continue
        name = f"binding {position}"
        copies.append(copy_call(item, name))
        outputs.append(Port(name, "uint32", (["//", item.size, 4],)))
    written = output_range(plan, number)
    outputs.append(Port("result", "uint32", (["//", written.size, 4],)))
    calls = (*plan.calls[:number], *copies, call, copy_call(written, "result"))
    return replace(
        plan,
        key="",
        kernels=(*plan.kernels, copy_kernel()),
        steps=(DeviceStep(calls),),
        outputs=(*plan.outputs, *outputs),
    )
