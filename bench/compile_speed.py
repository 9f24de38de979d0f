"""The compiler's own time: from a file to a plan, without a device.

Each case runs in a fresh process, once with everything cold and then again: the first time includes importing the
compiler and compiling its templates.  Processor time is given beside wall time, as other work on the machine does not
change it much; the compiler uses one thread.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from .graphs import SHAPES
from .models import MODELS

SIZES = (500, 2000, 8000)
#: Fresh processes in which a new shape after the first is timed
NEW_SHAPE_PROCESSES = 7
#: Stages in order; what a stage reports belongs to the time since the one before
STAGES = ("import", "specialise", "expand", "passes", "weights", "layout", "plan", "json")


@dataclass
class CompileTime:
    """``first_s`` is wall time in a fresh process, imports included; the others are of the least of the later times.

    ``new_shape_s`` is the processor time of other input shapes after the first, for the same imported model, and
    ``first_processor_s`` that of the first: medians of some fresh processes.  None where the model has one shape.
    """

    name: str
    nodes: int
    kernels: int
    calls: int
    first_s: float
    wall_s: float
    processor_s: float
    stages_ms: dict[str, float] = field(default_factory=dict)
    first_processor_s: float | None = None
    new_shape_s: float | None = None
    passes_ms: dict[str, float] = field(default_factory=dict)  #: of the driver's own stages and of every pass


def measure_models(names: list[str], repeat: int, tell: Callable[[str], None]) -> list[CompileTime]:
    """Models by name, at the input shapes of their benchmark."""
    times = []
    for name in names:
        tell(name)
        model = MODELS[name]
        shapes = {key: array.shape for key, array in model.feeds().items()}
        others = model.other_feeds and {key: array.shape for key, array in model.other_feeds().items()}
        time = _in_process(name, model.locate(), shapes, repeat, others)
        if others is not None:
            more = [_in_process(name, model.locate(), shapes, 0, others) for _ in range(NEW_SHAPE_PROCESSES - 1)]
            time.first_processor_s = _median(each.first_processor_s for each in (time, *more))
            time.new_shape_s = _median(each.new_shape_s for each in (time, *more))
        times.append(time)
    return times


def _median(values: Iterable[float | None]) -> float:
    return statistics.median(value for value in values if value is not None)


def measure_graphs(sizes: tuple[int, ...], repeat: int, tell: Callable[[str], None]) -> list[CompileTime]:
    """Every shape of synthetic graph in every size."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for shape, make in SHAPES.items():
            for size in sizes:
                tell(f"{shape} of {size} nodes")
                path = Path(folder) / f"{shape}-{size}.onnx"
                onnx.save(make(size), path)
                times.append(_in_process(shape, path, None, repeat))
    return times


def exceeds_linearithmic(small: CompileTime, large: CompileTime, slack: float = 1.25) -> bool:
    """Whether time grew faster than n log n from one size to the next, beyond what measuring may add."""
    expected = large.nodes * math.log(large.nodes) / (small.nodes * math.log(small.nodes))
    return large.processor_s > slack * expected * small.processor_s


#: Milliseconds below which the growth of a pass is not judged, and how much faster than n log n one may seem to grow:
#: caches of the processor and the collector of Python's cycles make larger graphs dearer a node
LEAST_MS, PASS_SLACK = 10.0, 2.0


def steep_passes(small: CompileTime, large: CompileTime) -> list[str]:
    """Passes whose time grew faster than n log n from one size to the next."""
    expected = large.nodes * math.log(large.nodes) / (small.nodes * math.log(small.nodes))
    return [
        name
        for name, spent in large.passes_ms.items()
        if spent > PASS_SLACK * expected * max(small.passes_ms.get(name, 0.0), LEAST_MS)
    ]


Shapes = dict[str, tuple[int, ...]]


def _in_process(
    name: str, path: Path, shapes: Shapes | None, repeat: int, other_shapes: Shapes | None = None
) -> CompileTime:
    argument = json.dumps(
        {"name": name, "path": str(path), "shapes": shapes, "repeat": repeat, "other_shapes": other_shapes}
    )
    command = [sys.executable, "-m", "bench.compile_speed", argument]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return CompileTime(*json.loads(output.splitlines()[-1]))


def _compile(
    path: str, shapes: dict[str, tuple[int, ...]] | None
) -> tuple[Any, int, dict[str, float], dict[str, float]]:
    """Gives the plan, the number of nodes in the file, and processor milliseconds by stage and by pass."""
    from shaderloom.compiler.driver import compile_model
    from shaderloom.compiler.frontend import load_model
    from shaderloom.compiler.specialise import bind_shapes
    from shaderloom.runtime.device_profile import DeviceProfile

    spent: dict[str, float] = dict.fromkeys(STAGES, 0.0)
    passes: dict[str, float] = {}
    last = time.process_time()

    def lap(name: str) -> None:
        nonlocal last
        now = time.process_time()
        spent[name if name in STAGES else "passes"] += (now - last) * 1e3
        passes[name] = passes.get(name, 0.0) + (now - last) * 1e3
        last = now

    model = load_model(path)
    lap("import")
    if shapes is None:
        shapes = {port.name: tuple(int(dim or 1) for dim in port.dims or ()) for port in model.inputs}
    bound = bind_shapes(model, shapes, {})
    plan = compile_model(model, bound, DeviceProfile(kind="cpu"), on_stage=lambda stage, _: lap(stage))
    lap("plan")
    json.dumps(plan.to_json())
    lap("json")
    return plan, model.nodes_in_file, spent, passes


def _compile_again(path: str, shapes: Shapes) -> float:
    """Processor seconds of the plan for one more set of shapes, the model being imported."""
    from shaderloom.compiler.driver import compile_model
    from shaderloom.compiler.frontend import load_model
    from shaderloom.compiler.specialise import bind_shapes
    from shaderloom.runtime.device_profile import DeviceProfile

    model = load_model(path)
    start = time.process_time()
    compile_model(model, bind_shapes(model, shapes, {}), DeviceProfile(kind="cpu"))
    return time.process_time() - start


def _main() -> None:
    job = json.loads(sys.argv[1])
    first_s = first_processor_s = new_shape_s = best = None
    for _ in range(job["repeat"] + 1):
        wall, processor = time.perf_counter(), time.process_time()
        plan, nodes, stages, passes = _compile(job["path"], job["shapes"])
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        if first_s is None:
            first_s = wall
            if job["other_shapes"] is not None:
                first_processor_s, new_shape_s = processor, _compile_again(job["path"], job["other_shapes"])
        elif best is None or processor < best[1]:
            best = (wall, processor, stages, passes)
    calls = sum(len(stage.calls) for stage in plan.stages)
    *times, passes = best or (wall, processor, stages, passes)
    figures = [len(plan.kernels), calls, first_s, *times, first_processor_s, new_shape_s, passes]
    print(json.dumps([job["name"], nodes, *figures]))


if __name__ == "__main__":
    _main()
