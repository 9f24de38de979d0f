"""Models on clusters of Ray: a class for data sets, and a server (``pip install 'shaderloom[ray]'``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .distributed.predictor import Predictor

if TYPE_CHECKING:
    from .distributed.deployment import Deployment

__all__ = ["Deployment", "Predictor"]


def __getattr__(name: str) -> Any:
    """Import Ray Serve for what needs it alone: workers of data sets do not."""
    if name == "Deployment":
        from .distributed.deployment import Deployment

        return Deployment
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
