"""The size histories of one model, which outlive its sessions in the disk cache, and what was refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..log import COMPILE
from ..notices import notify
from ..runtime.plan.errors import InputError, ShaderloomError
from ..runtime.plan.size_range import SizeRange
from .open_sizes import GeneralisedShape, Key, SizeHistory, sizes_text
from .size_orders import ValueAxis

if TYPE_CHECKING:
    from .model_cache import ModelCache

#: The identity of the inputs' history among those of a model
INPUTS = "inputs"
#: The entry with the reasons of refusals, beside those with histories
_REASONS = "why refused"
#: Values of ``dynamic`` that are no mapping
MODES = ("auto", "off")


class SizeMemory:
    """Histories by what is compiled: the model's inputs, or a stage by the identity of its state.

    ``in_inputs`` and ``in_stages`` say where sizes may be opened.  Not thread-safe: the engine's lock, or that of the
    program, guards it.
    """

    def __init__(
        self,
        cache: ModelCache,
        options: Mapping[str, Any],
        mode: str | None,
        declared: Mapping[str, SizeRange],
        *,
        in_inputs: bool,
    ) -> None:
        self.mode = mode  #: "auto", "off", or None where ranges are declared
        self.in_inputs = in_inputs
        self.in_stages = mode != "off"
        self.refusals: dict[str, str] = {}  #: why no plan serves a range of sizes, by the range
        self.declared_points: dict[str, None] = {}  #: keys of plans for points of declared ranges, as text
        self._cache = cache
        self._declared = declared
        self._options = options
        self._histories: dict[str, SizeHistory] = {}
        self._stored: Mapping[str, Any] | None = None

    def history(self, identity: str, names: Mapping[ValueAxis, str] | None = None) -> SizeHistory:
        """Return the history under ``identity``, begun by an earlier process or new.

        That of a model's inputs has the ``names`` of dimensions, and narrow ranges.  Those of stages are wide: loops
        pass through all sizes, with a plan for each range of each stage.
        """
        history = self._histories.get(identity)
        if history is None:
            stored = self._read()
            history = self._histories[identity] = SizeHistory(narrow=False)
            if identity in stored:
                history.restore(stored[identity])
        if names is not None:
            history.names, history.narrow = names, True
        return history

    def _read(self) -> Mapping[str, Any]:
        """Return what an earlier process stored, and take over its reasons."""
        if self._stored is None:
            self._stored = self._cache.sizes(self._options) or {}
            reasons = self._stored.get(_REASONS)
            for sizes, reason in reasons.items() if isinstance(reasons, dict) else ():
                self.refusals.setdefault(str(sizes), str(reason))
        return self._stored

    def describe(self) -> dict[str, Any]:
        """Return the ranges and the points that have plans, of inputs and of stages, and why others have none.

        Those of open sizes are what this process and earlier ones compiled for, where sizes may be opened; declared
        ranges are all, their points what this process compiled for.
        """
        for identity in self._read() if self.in_stages else ():
            if identity != _REASONS:
                self.history(identity)
        histories = [
            history
            for identity, history in self._histories.items()
            if (self.in_inputs if identity == INPUTS else self.in_stages)
        ]
        points = [plan.sizes for history in histories for plan in history.plans if plan.own]
        generals = dict.fromkeys(str(general) for history in histories for general in history.generals)
        declared = describe_declared(self._declared)
        return {
            "mode": self.mode or declared["mode"],
            "ranges": [*declared["ranges"], *generals],
            "points": list({**self.declared_points, **dict.fromkeys(map(sizes_text, points))}),
            "refused": dict(self.refusals),
        }

    def note(
        self, identity: str, key: Key, general: GeneralisedShape | None = None, tiled: Collection[str] = ()
    ) -> None:
        """Record that a plan was compiled for ``key``, for this process and those to come.

        See :meth:`SizeHistory.note`.
        """
        self.history(identity).note(key, general, tiled)
        self._store()

    def refuse(self, identity: str, key: Key, general: GeneralisedShape, reason: str) -> None:
        """Record why there is no plan for a range of sizes that covers ``key``."""
        self.history(identity).refuse(key, general)
        if str(general) not in self.refusals:
            COMPILE.info("no plan for %s: %s", general, reason)
        self.refusals[str(general)] = reason
        self._store()

    def refuse_declared(self, ranges: Mapping[str, SizeRange], error: ShaderloomError) -> None:
        """Warn that the device cannot serve declared ranges by one plan."""
        declared = ", ".join(describe_declared(ranges)["ranges"])
        self.refusals[declared] = str(error)
        notify(f"no plan serves {declared} on this device, so that each size is compiled by itself: {error.reason}")

    def _store(self) -> None:
        begun = {identity: history.to_json() for identity, history in self._histories.items() if history.plans}
        self._cache.store_sizes(self._options, {**(self._stored or {}), **begun, _REASONS: self.refusals})


def describe_declared(declared: Mapping[str, SizeRange]) -> dict[str, Any]:
    """Return declared ranges as :meth:`SizeMemory.describe` does."""
    return {"mode": "declared", "ranges": [f"{name} {sizes}" for name, sizes in declared.items()]}


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
