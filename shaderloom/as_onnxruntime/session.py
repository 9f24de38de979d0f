"""The session that programs see under onnxruntime's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..api.options import SessionOptions
from ..session.session import InferenceSession
from . import policy


class ProgramSession(InferenceSession):
    """Run an ONNX model on the providers that the policy gives to a program (:mod:`.policy`).

    ``providers`` and ``provider_options`` are what the program asks for.  Other arguments, which onnxruntime takes and
    ignores, are ignored.
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
        super().__init__(
            path_or_bytes,
            sess_options,
            [(name, options if name == "wgpu" else {}) for name in selected],
        )
        policy.report(asked, [self._described(name) for name in super().get_providers()])

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
            self.__init__(path_or_bytes, settings, providers, provider_options)  # type: ignore[misc]  # as onnxruntime

    def disable_fallback(self) -> None:
        """Do nothing: a session never changes its providers by itself."""

    def enable_fallback(self) -> None:
        """Do nothing: a session never changes its providers by itself."""

    def _described(self, provider: str) -> str:
        return f"{provider} ({self.device.name})" if provider == "wgpu" else provider
