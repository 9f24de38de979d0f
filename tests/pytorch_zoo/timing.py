"""Times of a model in eager PyTorch, in another backend of PyTorch's and in a session, in turns."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import shaderloom
from shaderloom.torch.backend import shaderloom_backend

from .example import Example

ROUNDS = 10
#: Seconds after which no further round begins
ENOUGH = 30.0
_TREE = torch.utils._pytree


@dataclass(frozen=True)
class Times:
    """Milliseconds of a call, the median over rounds in which all of them run in turns; None for what does not run.

    They are those of the processor, over all threads, where it computes: other programs on the machine hardly change
    them.  A GPU's are of the clock.
    """

    eager: float
    inductor: float | None
    session: float


def time_on_host(example: Example, quiet: AbstractContextManager[Any], device: Any = None) -> Times:
    """Time calls with tensors on the host, whose results are there."""
    torch._dynamo.reset()
    compiled = torch.compile(example.model, backend="inductor")
    calls: dict[str, Callable[..., Any]] = {
        "eager": example.model,
        "inductor": compiled,
        "session": _session(example, device) or _compiled(example, device),
    }
    bound = {name: partial(call, *example.args, **example.kwargs) for name, call in calls.items()}
    medians = _medians(quiet, bound, time.process_time)
    return Times(medians["eager"], medians.get("inductor"), medians["session"])


def time_on_gpu(example: Example, quiet: AbstractContextManager[Any], device: Any = None) -> Times:
    """Time calls with tensors on the GPU, whose results stay there: of PyTorch's CUDA, and of the session's device.

    Both compute in float32: PyTorch's convolutions would take TensorFloat-32.  A model that is no session is compiled,
    and its tensors are on the host.
    """
    torch.backends.cudnn.allow_tf32 = False
    session = _session(example, device, preferred_output_location="gpu-buffer")
    compiled = _compiled(example, device) if session is None else None

    def moved(move: Callable[[Any], Any]) -> tuple[Any, Any]:
        arguments: tuple[Any, Any] = _TREE.tree_map_only(torch.Tensor, move, (example.args, example.kwargs))
        return arguments

    args, kwargs = example.args, example.kwargs
    if session is not None:
        args, kwargs = moved(lambda value: shaderloom.Tensor.from_numpy(value, session.device))
    cuda_args, cuda_kwargs = moved(lambda value: value.cuda())
    model = copy.deepcopy(example.model).cuda()

    def eager() -> None:
        model(*cuda_args, **cuda_kwargs)
        torch.cuda.synchronize()

    def ours() -> None:
        (session or compiled)(*args, **kwargs)
        if session is not None:
            session.synchronize()

    medians = _medians(quiet, {"eager": eager, "session": ours}, time.perf_counter)
    return Times(medians["eager"], None, medians["session"])


def _session(example: Example, device: Any, **options: Any) -> Any:
    """Return the session of an example, None if PyTorch cannot export it."""
    try:
        return shaderloom.from_torch(example.model, example.args, example.kwargs, device=device, **options)
    except shaderloom.UnsupportedError:
        return None


def _compiled(example: Example, device: Any) -> Any:
    return torch.compile(copy.deepcopy(example.model), backend=shaderloom_backend, options={"device": device})


def _medians(
    quiet: AbstractContextManager[Any], calls: dict[str, Callable[[], Any]], clock: Callable[[], float]
) -> dict[str, float]:
    """Return the medians of the calls that run, over rounds inside ``quiet``; two rounds before do not count."""
    times: dict[str, list[float]] = {}
    with torch.no_grad():
        for name, call in calls.items():
            try:
                call()
                call()
            except Exception:  # of a backend that cannot compile this model
                if name != "inductor":
                    raise
                continue
            times[name] = []
        with quiet:
            end = time.perf_counter() + ENOUGH
            for _ in range(ROUNDS):
                for name, rows in times.items():
                    start = clock()
                    calls[name]()
                    rows.append(1e3 * (clock() - start))
                if time.perf_counter() > end:
                    break
    return {name: statistics.median(rows) for name, rows in times.items()}
