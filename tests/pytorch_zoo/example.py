"""A model with the arguments of a call, and weights under which its results depend on all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

#: Standard deviation of what is added to parameters that a library initialises with one number
NOISE = 0.1


@dataclass
class Example:
    """A model with the arguments of a call."""

    model: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    settle: bool = True  #: whether a call with these arguments sets the statistics of batch normalisation

    def __call__(self) -> Any:
        """Return the results of eager PyTorch."""
        with torch.no_grad():
            return self.model(*self.args, **self.kwargs)


def make(build: Callable[[], Example]) -> Example:
    """Return the example in evaluation mode; the same one each time.

    Parameters that are initialised with one number, such as the scales of 1e-6 in ConvNeXt and the zeros in a ResNet,
    get noise: they would hide what a whole branch computes. So would statistics of batch normalisation that are not
    those of its inputs: activations die out or explode.
    """
    torch.manual_seed(0)
    example = build()
    example.model.eval()
    with torch.no_grad():
        for parameter in example.model.parameters():
            if parameter.numel() > 1 and (parameter == parameter.flatten()[0]).all():
                parameter.add_(torch.randn_like(parameter), alpha=NOISE)
    norms = [module for module in example.model.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    if norms and example.settle:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over calls
            norm.train()
        example()
        for norm in norms:
            norm.eval()
    return example
