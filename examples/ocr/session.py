"""What detection and recognition ask of a runtime: the part of onnxruntime's session interface that they use."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class NamedInput(Protocol):
    @property
    def name(self) -> str: ...


class Session(Protocol):
    """A loaded model: shaderloom.InferenceSession and onnxruntime.InferenceSession both are one."""

    def get_inputs(self) -> Sequence[NamedInput]: ...

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> Sequence[Any]: ...


MakeSession = Callable[[Path], Session]


class Model:
    """A session of one input and one output that remembers how long each run took."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.run_seconds: list[float] = []
        self.input_shapes: list[tuple[int, ...]] = []
        self._input_name = session.get_inputs()[0].name

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        start = time.perf_counter()
        (result,) = self.session.run(None, {self._input_name: values})
        self.run_seconds.append(time.perf_counter() - start)
        self.input_shapes.append(values.shape)
        return result


def to_network_input(
    picture: NDArray[np.uint8], mean: Sequence[float], deviation: Sequence[float]
) -> NDArray[np.float32]:
    """Turn an [H, W, 3] RGB picture into normalised [1, 3, H, W] planes.

    The PP-OCR models were trained on pictures as OpenCV reads them, so the planes are blue, green, red, and mean and
    deviation are in that order too.
    """
    scaled = picture[:, :, ::-1].astype(np.float32) / 255
    normalised = (scaled - np.asarray(mean, np.float32)) / np.asarray(deviation, np.float32)
    return np.ascontiguousarray(normalised.transpose(2, 0, 1)[None])
