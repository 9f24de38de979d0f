"""One case of the compiler's own time, in a fresh process: a JSON job as the argument, JSON figures as the last line.

Nothing is imported before the clock starts but what every run of a plan needs, numpy: the first compilation pays for
the compiler's modules, onnx and the templates.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

import_module("numpy")  # before the clock starts, see above

#: Parts of the work, in order
PARTS = ("import", "specialise", "expand", "passes", "weights", "layout", "plan", "json")
#: What belongs to a part: passes of the compiler, and its surroundings; all other passes rewrite
PART_OF = {
    **{part: part for part in ("import", "specialise", "expand", "json")},
    "weight-layouts": "weights",
    **dict.fromkeys(("widen-halves", "fuse", "layout", "restore-halves", "storage"), "layout"),
    **dict.fromkeys(("kernels", "in-place", "memory", "shaders", "plan"), "plan"),
}

Shapes = dict[str, tuple[int, ...]]


def _compile(path: str, shapes: Shapes | None) -> tuple[Any, int, dict[str, float], dict[str, float]]:
    """Gives the plan, the number of nodes in the file, and processor milliseconds by part and by pass."""
    from shaderloom.compiler.binding.shape_binding import bind_shapes
    from shaderloom.compiler.compilation import Compilation
    from shaderloom.compiler.driver import compile_model
    from shaderloom.compiler.frontend import load_model
    from shaderloom.compiler.target import target_of
    from shaderloom.runtime.plan.device_profile import DeviceProfile

    spent: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    passes: dict[str, float] = {}
    last = time.process_time()

    def lap(name: str) -> None:
        nonlocal last
        now = time.process_time()
        spent[PART_OF.get(name, "passes")] += (now - last) * 1e3
        passes[name] = passes.get(name, 0.0) + (now - last) * 1e3
        last = now

    model = load_model(path)
    lap("import")
    if shapes is None:
        shapes = {port.name: tuple(int(dim or 1) for dim in port.dims or ()) for port in model.inputs}
    bound = bind_shapes(model, shapes, {})
    plan = compile_model(
        model, bound, Compilation(target_of(DeviceProfile(kind="cpu")), observer=lambda report, _: lap(report.name))
    )
    json.dumps(plan.to_json())
    lap("json")
    return plan, model.nodes_in_file, spent, passes


def _compile_again(path: str, shapes: Shapes) -> float:
    """Processor seconds of the plan for one more set of shapes, the model being imported."""
    from shaderloom.compiler.binding.shape_binding import bind_shapes
    from shaderloom.compiler.compilation import Compilation
    from shaderloom.compiler.driver import compile_model
    from shaderloom.compiler.frontend import load_model
    from shaderloom.compiler.target import target_of
    from shaderloom.runtime.plan.device_profile import DeviceProfile

    model = load_model(path)
    start = time.process_time()
    compile_model(model, bind_shapes(model, shapes, {}), Compilation(target_of(DeviceProfile(kind="cpu"))))
    return time.process_time() - start


def _main() -> None:
    job = json.loads(sys.argv[1])
    first_s = first_processor_s = new_shape_s = best = None
    for _ in range(job["repeat"] + 1):
        wall, processor = time.perf_counter(), time.process_time()
        plan, nodes, parts, passes = _compile(job["path"], job["shapes"])
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        if first_s is None:
            first_s = wall
            if job["other_shapes"] is not None:
                first_processor_s, new_shape_s = processor, _compile_again(job["path"], job["other_shapes"])
        elif best is None or processor < best[1]:
            best = (wall, processor, parts, passes)
    calls = len(plan.calls)
    *times, passes = best or (wall, processor, parts, passes)
    figures = [len(plan.kernels), calls, first_s, *times, first_processor_s, new_shape_s, passes]
    print(json.dumps([job["name"], nodes, *figures]))


if __name__ == "__main__":
    _main()
