"""PyTorch replaying a CUDA graph: f32, TF32 off, tensors on the device, the same architectures with random weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.recurrent_models import LAYERS, UNITS
from bench.workers.turns import OpenedRuntime, serve


def main() -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)

    def open_model(job: dict[str, Any], feeds: dict[str, np.ndarray]) -> OpenedRuntime:
        if not job["torch"]:
            raise NotImplementedError("the architecture is not among the libraries'")
        module = _module(torch, job["torch"]).eval().cuda()
        inputs = [torch.from_numpy(array).cuda() for array in feeds.values()]
        graphs = {}
        for searching in (False, True):  # the search for convolution algorithms chooses badly at times
            torch.backends.cudnn.benchmark = searching
            graphs[searching] = _record(torch, module, inputs)

        def replay(searching: bool) -> None:
            graphs[searching].replay()
            torch.cuda.synchronize()

        times = {}
        for searching in graphs:
            replay(searching)
            began = time.perf_counter()
            for _ in range(20):
                replay(searching)
            times[searching] = time.perf_counter() - began
        best = min(times, key=lambda searching: times[searching])
        return OpenedRuntime({"device": lambda: replay(best)}, facts={"cudnn.benchmark": best})

    serve(open_model, {"version": torch.__version__, "device": torch.cuda.get_device_name()})


def _record(torch: Any, module: Any, inputs: list[Any]) -> Any:
    """A CUDA graph of one run."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*inputs)
    return graph


def _module(torch: Any, name: str) -> Any:
    if name == "mlp_4096x4":
        layers: list[Any] = []
        for _ in range(4):
            layers += [torch.nn.Linear(4096, 4096), torch.nn.GELU()]
        return torch.nn.Sequential(*layers)
    if name in ("LSTM", "GRU"):
        return getattr(torch.nn, name)(UNITS, UNITS, LAYERS)
    if name == "bert_base":
        import transformers

        model = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)

        class Positional(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner = model

            def forward(self, ids: Any, mask: Any) -> Any:
                # the float form of the mask: making it asks the device for a value, which a graph cannot
                bias = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
                return self.inner(input_ids=ids, attention_mask=bias.expand(-1, 1, ids.shape[1], -1))[0]

        return Positional()
    import torchvision

    make: Callable[[], Any] = getattr(torchvision.models, name)
    return make()


if __name__ == "__main__":
    main()
