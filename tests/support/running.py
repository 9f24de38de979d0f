"""Compile a model and run the plan on a device, with memory poisoned before each run; no session, no disk cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from shaderloom.compiler.binding.shape_binding import bind_shapes
from shaderloom.compiler.compilation import Compilation
from shaderloom.compiler.driver import compile_model
from shaderloom.compiler.frontend import load_model
from shaderloom.compiler.options import CompileOptions
from shaderloom.compiler.target import target_of
from shaderloom.runtime.device.device import Device
from shaderloom.runtime.execution.executor import Executor
from shaderloom.runtime.execution.weight_pool import WeightPool
from shaderloom.runtime.memory.source_files import SourceFiles
from shaderloom.runtime.plan.caps import Caps, MemoryAccount
from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile
from shaderloom.runtime.plan.plan import Plan

Feeds = Mapping[str, np.ndarray]


def compile_for(
    model: onnx.ModelProto,
    feeds: Feeds,
    profile: DeviceProfile = WEB,
    *,
    dynamic: Mapping[str, tuple[int, int]] | None = None,
    **options: Any,
) -> Plan:
    """The plan for the shapes of ``feeds``; ``options`` are those of the compiler, ``verify`` is on."""
    imported = load_model(model.SerializeToString())
    bound = bind_shapes(imported, {name: array.shape for name, array in feeds.items()}, dynamic)
    return compile_model(
        imported, bound, Compilation(target_of(profile), CompileOptions(**{"verify": True, **options}))
    )


def run_plan(
    device: Device,
    plan: Plan,
    model: onnx.ModelProto,
    feeds: Feeds | Sequence[Feeds],
    *,
    use_native: bool | None = None,
) -> Any:
    """Outputs in the plan's order for one set of feeds, or a list of them for several.

    Checks that nothing stays in the account of device memory.
    """
    account = MemoryAccount(Caps().device_memory)
    pool = WeightPool(device, SourceFiles(None, model.SerializeToString(), {}), account)
    several = [feeds] if isinstance(feeds, Mapping) else feeds
    results = []
    try:
        with Executor(device, plan, pool, use_native=use_native, poison=True) as executor:
            for each in several:
                found = executor.run(each)
                results.append([found[port.name] for port in plan.outputs])
    finally:
        pool.close()
    assert account.used == 0
    return results[0] if isinstance(feeds, Mapping) else results


def run_model(device: Device, model: onnx.ModelProto, feeds: Feeds, **options: Any) -> list[np.ndarray]:
    """Compile for ``device`` and run once."""
    return run_plan(device, compile_for(model, feeds, device.profile, **options), model, feeds)
