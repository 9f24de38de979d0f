"""Process that loads and compiles damaged models, and prints a line of JSON for each that ends in no own error.

``python -m tests.fuzz.model_worker SEED COUNT SECONDS``: at most so many models for about so long.  The last line has
the number tried.  Before each model its number goes to standard error, for the case that the process ends there.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from shaderloom.model.model import Model
from shaderloom.runtime.plan.device_profile import WEB
from shaderloom.runtime.plan.errors import InternalError, ShaderloomError

from ..support.processor_time import at_most, watch
from .damage import damaged
from .model_seeds import DATA_FILE, FOLDER, seeds

#: Seconds of processor time, and bytes of address space, that a model may take
SECONDS, MEMORY = 5, 2 << 30

#: Size of a dimension that the model leaves open
OPEN = 3


def compile_model(path: Path) -> None:
    """Load a model, and compile it for the shapes that it declares."""
    model = Model(path, cache=False)
    try:
        shapes = {
            port.name: tuple(dim if isinstance(dim, int) else OPEN for dim in port.dims or ())
            for port in model.header.inputs
        }
        model.compile(model.key(shapes), shapes, WEB)
    finally:
        model.close()


def fault_of(path: Path) -> dict[str, Any] | None:
    """Return what is wrong with the outcome; None for a plan or an own error."""
    try:
        with at_most(SECONDS):
            compile_model(path)
        return None
    except ShaderloomError as error:
        if not isinstance(error, InternalError):
            return None
        found: BaseException = error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        found = error
    frames = [frame for frame in traceback.extract_tb(found.__traceback__) if "/tests/" not in frame.filename]
    own = [frame for frame in frames if "shaderloom" in frame.filename] or frames
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return {"error": f"{type(found).__name__}: {found}"[:300], "at": where}


def main() -> None:
    seed, count, seconds = (int(argument) for argument in sys.argv[1:])
    warnings.simplefilter("ignore")
    watch()
    files, tried = seeds(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / DATA_FILE).write_bytes((FOLDER / DATA_FILE).read_bytes())
        path = folder / "model.onnx"
        for content in files.values():  # as they are, which also imports all
            path.write_bytes(content)
            assert fault_of(path) is None
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        end = time.monotonic() + seconds
        for kind, content in damaged(files, seed):
            if tried == count or time.monotonic() > end:
                break
            print(tried, file=sys.stderr, flush=True)
            path.write_bytes(content)
            fault = fault_of(path)
            if fault is not None:
                print(json.dumps({"number": tried, "kind": kind, **fault, "content": content.hex()}), flush=True)
            tried += 1
    print(json.dumps({"tried": tried}))


if __name__ == "__main__":
    main()
