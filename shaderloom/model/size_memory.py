"""The size histories of one model, which outlive its sessions in the disk cache, and what was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..log import COMPILE
from ..runtime.plan.errors import InputError
from .open_sizes import GeneralisedShape, Key, SizeHistory, ValueAxis

if TYPE_CHECKING:
    from .model_cache import ModelCache

#: Values of ``dynamic`` that are no mapping
MODES = ("auto", "off")


class SizeMemory:
    """Histories by what is compiled: the model's inputs, or a stage by the identity of its state.

    ``in_inputs`` and ``in_stages`` say where sizes may be opened.  Not thread-safe: the engine's lock, or that of the
    program, guards it.
    """

    def __init__(self, cache: ModelCache, options: Mapping[str, Any], mode: str | None, *, in_inputs: bool) -> None:
        self.mode = mode  #: "auto", "off", or None where ranges are declared
        self.in_inputs = in_inputs
        self.in_stages = mode != "off"
        self.refusals: dict[str, str] = {}  #: why no plan serves a range of sizes, by the range
        self._cache = cache
        self._options = options
        self._histories: dict[str, SizeHistory] = {}
        self._stored: Mapping[str, Any] | None = None

    def history(self, identity: str, names: Mapping[ValueAxis, str] | None = None) -> SizeHistory:
        """Return the history under ``identity``, begun by an earlier process or new."""
        found = self._histories.get(identity)
        if found is None:
            if self._stored is None:
                self._stored = self._cache.sizes(self._options) or {}
            found = self._histories[identity] = SizeHistory(names or {})
            if identity in self._stored:
                found.restore(self._stored[identity])
        return found

    def note(self, identity: str, key: Key, general: GeneralisedShape | None = None) -> None:
        """Record that a plan was compiled for ``key``, for this process and those to come.

        See :meth:`SizeHistory.note`.
        """
        self.history(identity).note(key, general)
        self._store()

    def refuse(self, identity: str, key: Key, general: GeneralisedShape, reason: str) -> None:
        """Record why there is no plan for a range of sizes that covers ``key``."""
        self.history(identity).refuse(key, general)
        if str(general) not in self.refusals:
            COMPILE.info("no plan for %s: %s", general, reason)
        self.refusals[str(general)] = reason

    def _store(self) -> None:
        begun = {identity: history.to_json() for identity, history in self._histories.items() if history.plans}
        self._cache.store_sizes(self._options, {**(self._stored or {}), **begun})


def read_mode(dynamic: Any) -> str | None:
    """Return ``dynamic`` if it is a mode, and None for a mapping; raise :class:`InputError` for another text."""
    if dynamic is None:
        return "auto"
    if not isinstance(dynamic, str):
        return None
    if dynamic not in MODES:
        raise InputError(
            f"dynamic is 'auto', 'off' or a mapping from names of dimensions to ranges, not {dynamic!r}",
            hint='write ranges like {"height": (64, 512)}',
        )
    return dynamic
