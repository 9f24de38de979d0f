"""Options of the compiler for one model, as its precision and its calibration have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..compiler.options import check_batch, check_logits
from ..runtime.plan.dtypes import check_precision
from .calibration import Calibration


class ModelOptions:
    """The options that a caller has stated for a model, and those that follow from them."""

    def __init__(self, stated: Mapping[str, Any]) -> None:
        """Check precision, logits and batch; raise :class:`InputError` for an unknown one."""
        self.stated = dict(stated)
        self.logits = check_logits(self.stated.get("logits", "all"))
        self.batch = check_batch(self.stated.get("batch", "declared"))
        self.check_indices = bool(self.stated.get("check_indices", False))
        #: the model is in half precision
        self.half = check_precision(self.stated.get("precision", "float32")) == "float16"
        measures = "reached" not in self.stated and (self.half or self.stated.get("widen", "auto") == "auto")
        #: what runs were seen to reach; None if no plan depends on that, or the options already state it
        self.calibration = Calibration(half=self.half) if measures else None

    @property
    def current(self) -> dict[str, Any]:
        """The options with the magnitudes that calibration has recorded so far."""
        calibration = self.calibration
        if calibration is None or (calibration.is_new and not calibration.half):
            return self.stated
        widen = {} if self.stated.get("widen", "auto") == "off" else {"widen": "measured"}
        return {**self.stated, **widen, "reached": calibration.option()}

    @property
    def full_precision(self) -> dict[str, Any]:
        """The options without those of half precision."""
        return {name: value for name, value in self.stated.items() if name not in ("precision", "reached")}

    @property
    def reference(self) -> dict[str, Any]:
        """Everything in float32 with the kernels of the model's plans.

        Half precision has too few bits for Winograd's tiles.
        """
        disabled = [*self.stated.get("disabled_passes", ()), *(["winograd"] if self.half else [])]
        return {**self.full_precision, "disabled_passes": disabled, "widen": "all"}
