"""The compiler's own time: from a file to a plan, without a device.

Each case runs in a fresh process, once with everything cold and then again: the first time includes importing the
compiler with what it needs, and compiling its templates.  Processor time is given beside wall time, as other work on
the machine does not change it much; the compiler uses one thread.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from .graphs import SHAPES
from .models import MODELS
from .workers.compile_time import Shapes

SIZES = (500, 2000, 8000)
#: Fresh processes in which a new shape after the first is timed
NEW_SHAPE_PROCESSES = 7


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
    parts_ms: dict[str, float] = field(default_factory=dict)
    first_processor_s: float | None = None
    new_shape_s: float | None = None
    passes_ms: dict[str, float] = field(default_factory=dict)  #: of the driver's own parts and of every pass


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


def _in_process(
    name: str, path: Path, shapes: Shapes | None, repeat: int, other_shapes: Shapes | None = None
) -> CompileTime:
    argument = json.dumps(
        {"name": name, "path": str(path), "shapes": shapes, "repeat": repeat, "other_shapes": other_shapes}
    )
    command = [sys.executable, "-m", "bench.workers.compile_time", argument]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return CompileTime(*json.loads(output.splitlines()[-1]))
