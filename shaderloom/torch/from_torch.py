"""The entry of :mod:`shaderloom.torch` for programs; importable where PyTorch is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..runtime.plan.errors import UnsupportedError

if TYPE_CHECKING:
    from .session import TorchSession


def from_torch(
    module: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    **options: Any,
) -> TorchSession:
    """Return a ``torch.nn.Module`` in evaluation mode as a session, which is called as the module is.

    ``args``, a tuple or the only argument, and ``kwargs`` are an example of a call: dtypes, ranks and arguments that
    are not tensors hold for all calls, sizes unless ``dynamic_shapes`` opens them, which is as for
    ``torch.export.export``.  A dimension with a range, ``torch.export.Dim("batch", min=1, max=8)``, is declared to the
    session; others are opened as they change (docs/guide/shapes.md).  ``options`` are those of
    :class:`InferenceSession`.

    The session gives PyTorch tensors on the host, or :class:`Tensor` for outputs that stay on the device
    (``preferred_output_location``), and takes both.  Parameters are copied: later changes of the module do not count.

    Raises :class:`UnsupportedError` if PyTorch is missing or cannot export the module, :class:`InputError` for a module
    in training mode, and what a session raises for its model.
    """
    try:
        from .session import TorchSession
    except ImportError as error:
        raise UnsupportedError(
            f"from_torch needs PyTorch and its exporter: {error}", hint="pip install 'shaderloom[torch]'"
        ) from error
    arguments = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    return TorchSession.of_module(module, arguments, dict(kwargs or {}), dynamic_shapes, options)
