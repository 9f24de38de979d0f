"""The session that programs see under onnxruntime's name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..api.options import RunOptions, SessionOptions
from ..api.values import InputValue, OutputValue
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.errors import ShaderloomError
from ..session.session import InferenceSession
from . import policy


class ProgramSession(InferenceSession):
    """Run an ONNX model on the providers that the policy gives to a program (:mod:`.policy`).

    ``providers`` and ``provider_options`` are what the program asks for.  Other arguments, which onnxruntime takes and
    ignores, are ignored.  Of onnxruntime's attributes that are not public it has those that programs read.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **_: Any,
    ) -> None:
        asked, options = policy.split_options(providers, provider_options)
        self._program_arguments = path_or_bytes, sess_options
        selected = policy.select(asked)
        try:
            super().__init__(
                path_or_bytes,
                sess_options,
                [(name, options if name == "wgpu" else {}) for name in selected],
            )
        except ShaderloomError as error:
            policy.reword(error)
            raise
        policy.report(asked, [self._described(name) for name in super().get_providers()])
        is_path = isinstance(path_or_bytes, (str, os.PathLike))
        self._model_path = os.fspath(path_or_bytes) if is_path else None
        self._model_bytes = None if is_path else path_or_bytes
        self._sess_options = self.get_session_options()
        self._inputs_meta, self._outputs_meta = self.get_inputs(), self.get_outputs()
        self._overridable_initializers, self._model_meta = self.get_overridable_initializers(), self.get_modelmeta()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, InputValue],
        run_options: RunOptions | None = None,
        *,
        outputs: Mapping[str, Tensor | np.ndarray | str] | None = None,
    ) -> list[OutputValue]:
        """Run the model and return its outputs; hints of errors are in the words of the policy."""
        try:
            return super().run(output_names, input_feed, run_options, outputs=outputs)
        except ShaderloomError as error:
            policy.reword(error)
            raise

    def get_providers(self) -> list[str]:
        """Return onnxruntime's names of the session's providers, in order of preference."""
        return [policy.ORT_NAMES[name] for name in super().get_providers()]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each provider, as texts."""
        return {policy.ORT_NAMES[name]: options for name, options in super().get_provider_options().items()}

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Open the model again if the policy gives other providers for these."""
        asked, options = policy.split_options(providers, provider_options)
        if options or [policy.ORT_NAMES[name] for name in policy.select(asked)] != self.get_providers():
            self.close()
            path_or_bytes, settings = self._program_arguments
            ProgramSession.__init__(self, path_or_bytes, settings, providers, provider_options)

    def disable_fallback(self) -> None:
        """Do nothing: a session never changes its providers by itself."""

    def enable_fallback(self) -> None:
        """Do nothing: a session never changes its providers by itself."""

    def _described(self, provider: str) -> str:
        return f"{provider} ({self.device.name})" if provider == "wgpu" else provider


# as which programs print it, look for it, and pickle what is derived of it
ProgramSession.__name__ = ProgramSession.__qualname__ = "InferenceSession"
ProgramSession.__module__ = "onnxruntime.capi.onnxruntime_inference_collection"
