"""PyTorch with a DataLoader over many pictures: f32, TF32 off, numpy in and out, the same architectures.

The loader has no processes or eight, whichever is faster; memory is pinned, and copies do not wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workers.turns import OpenedRuntime, serve

PICTURES = 1024  #: of one time
PROCESSES = (0, 8)


def main() -> None:
    import torch
    import torchvision

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)

    def open_model(job: dict[str, Any], feeds: dict[str, np.ndarray]) -> OpenedRuntime:
        module = getattr(torchvision.models, job["torch"])().eval().cuda()
        pictures = torch.from_numpy(next(iter(feeds.values())))

        class Pictures(torch.utils.data.Dataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return PICTURES

            def __getitem__(self, number: int) -> Any:
                return pictures[number % len(pictures)]

        def of(processes: int) -> Callable[[], list[np.ndarray]]:
            loader = torch.utils.data.DataLoader(
                Pictures(),
                batch_size=job["batch"],
                num_workers=processes,
                pin_memory=True,
                persistent_workers=processes > 0,
            )

            def run() -> list[np.ndarray]:
                results = [module(batch.cuda(non_blocking=True)) for batch in loader]
                return [result.cpu().numpy() for result in results]

            return run

        runs = {processes: of(processes) for processes in PROCESSES}
        times = {}
        for processes, run in runs.items():
            run()
            began = time.perf_counter()
            run()
            times[processes] = time.perf_counter() - began
        best = min(times, key=lambda processes: times[processes])
        return OpenedRuntime({"loader": runs[best]}, None, {"pictures": {"loader": PICTURES}, "processes": best})

    serve(open_model, {"version": torch.__version__, "device": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
