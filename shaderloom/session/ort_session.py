"""Methods of onnxruntime's ``InferenceSession`` that are built on a session's ``run`` and the model's header."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

import numpy as np

from ..api.async_run import AsyncRun, AsyncRunner, Callback
from ..api.binding import IOBinding, OrtValue, as_feed_values, as_values
from ..api.options import RunOptions, SessionOptions
from ..api.values import InputValue, OutputValue
from ..model.header import ModelHeader, NodeArg, node_arg
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import ClosedError
from ..runtime.plan.model_metadata import ModelMetadata


class OrtSession(ABC):
    """Methods under onnxruntime's names, documented in ``docs/guide/onnxruntime-api.md``."""

    _header: ModelHeader
    _providers: tuple[str, ...]
    _provider_options: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    _session_options: SessionOptions
    _async: AsyncRunner
    _closed: bool

    @abstractmethod
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, InputValue],
        run_options: RunOptions | None = None,
        *,
        outputs: Mapping[str, Tensor | np.ndarray | str] | None = None,
    ) -> list[OutputValue]:
        """Run the model and return its outputs."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has finished what was submitted."""

    @overload
    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, InputValue],
        callback: None = None,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> AsyncRun: ...

    @overload
    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, InputValue],
        callback: Callback,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> None: ...

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, InputValue],
        callback: Callback | None = None,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> AsyncRun | None:
        """Run in the background.  Inputs must not change until the run has ended.

        With a callback (results, user data, message of an error) return None, as onnxruntime does; without one return
        a run that can be awaited, or asked for its ``result()``.  Raises :class:`ClosedError` for a closed session.
        """
        if self._closed:
            raise ClosedError("the session is closed")
        started = self._async.start(lambda: self.run(output_names, input_feed, run_options), callback, user_data)
        return started if callback is None else None

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run with :class:`OrtValue` in and out."""
        results = self.run(output_names, as_feed_values(input_dict_ort_values), run_options)
        return as_values(self, output_names, results)

    def io_binding(self) -> IOBinding:
        """Return an empty binding of inputs and outputs to memory."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with the bound inputs and outputs; the results are in the binding."""
        iobinding.run(run_options)

    def get_inputs(self) -> list[NodeArg]:
        """Return name, type and shape of each input."""
        return [node_arg(port) for port in self._header.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return name, type and shape of each output."""
        return [node_arg(port) for port in self._header.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the initializers that a feed may replace."""
        return [node_arg(port) for port in self._header.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """Return the metadata of the model."""
        return self._header.metadata

    def get_providers(self) -> list[str]:
        """Return the providers that initialised successfully, in order of preference."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each provider, as texts."""
        options = self._provider_options
        return {name: {key: str(value) for key, value in options.get(name, {}).items()} for name in self._providers}

    def get_session_options(self) -> SessionOptions:
        """Return the options that the session was created with."""
        return self._session_options
