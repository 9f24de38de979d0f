"""The entries of one model in the disk cache: its header, its plans, and the ranges that its tensors reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..cache import DiskCache, compiler_version
from ..compiler.tuning.config_choice import Choices
from ..runtime.memory.source_files import FileState
from ..runtime.plan.plan import Plan
from .header import ModelHeader
from .model_file import ModelFile
from .options import ModelOptions


class ModelCache:
    """The entries of one model, as ``options`` say that it is imported.

    Without a ``cache`` nothing is kept, and nothing is there.

    ``files`` are the states of the model's data files, which are part of every key but that of the header, which lists
    them.
    """

    def __init__(self, cache: DiskCache | None, file: ModelFile, options: ModelOptions) -> None:
        self.files: Mapping[str, FileState] = {}
        self._cache = cache
        self._file = file
        self._form = {"logits": options.logits, "check_indices": options.check_indices, "batch": options.batch}
        self._identity = file.identify()

    @property
    def is_authentic(self) -> bool:
        """Whether an entry is known to come from this user."""
        return self._cache is not None and self._cache.is_authentic

    def _entries(self, **others: Any) -> dict[str, Any]:
        files = {name: [state.size, state.modified_ns, state.inode] for name, state in sorted(self.files.items())}
        return {"model": self._identity, "files": files, "compiler": compiler_version(), **others}

    def header(self) -> ModelHeader | None:
        """Return the header if the model and its files are as they were."""
        stored = None if self._cache is None else self._cache.get("header", self._header_entries())
        try:
            header = None if stored is None else ModelHeader.from_json(stored)
        except ValueError:
            return None
        return header if header is not None and header.is_current(self._file.path) else None

    def store_header(self, header: ModelHeader) -> None:
        if self._cache is not None:
            self._cache.put_later("header", self._header_entries(), header.to_json)

    def _header_entries(self) -> dict[str, Any]:
        return {"model": self._identity, "compiler": compiler_version(), **self._form}

    def plan(self, entries: Mapping[str, Any], choices: Choices) -> Plan | None:
        """Return the plan that ``entries`` determine if today's measurements lead to the same decisions, else None."""
        stored = None if self._cache is None else self._cache.get("plan", self._entries(**entries))
        if not isinstance(stored, dict) or not isinstance(stored.get("decisions"), dict):
            return None
        if not choices.is_current(stored["decisions"]):
            return None
        try:
            return Plan.from_json(stored.get("plan"))
        except ValueError:
            return None

    def store_plan(self, entries: Mapping[str, Any], choices: Choices, plan: Plan) -> None:
        if self._cache is not None:
            log = choices.decision_log()
            self._cache.put_later("plan", self._entries(**entries), lambda: {"decisions": log, "plan": plan.to_json()})

    def finish(self) -> None:
        """Wait until what was stored is on the disk, for other processes."""
        if self._cache is not None:
            self._cache.finish()

    def ranges(self, options: Mapping[str, Any]) -> dict[str, float] | None:
        """Return the magnitudes out of range that were stored for the model with these options, by ONNX node."""
        stored = None if self._cache is None else self._cache.get("ranges", self._entries(options=options))
        return {str(node): float(magnitude) for node, magnitude in stored} if isinstance(stored, list) else None

    def sizes(self, options: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the sizes that the model was compiled for with these options, by what was compiled."""
        stored = None if self._cache is None else self._cache.get("sizes", self._entries(options=options))
        return stored if isinstance(stored, dict) else None

    def store_sizes(self, options: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
        if self._cache is not None:
            self._cache.put("sizes", self._entries(options=options), sizes)

    def store_ranges(self, options: Mapping[str, Any], ranges: list[list[Any]]) -> None:
        if self._cache is not None:
            self._cache.put("ranges", self._entries(options=options), ranges)
