"""Sessions that take and give PyTorch tensors, and are called as the module that they were made of."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..api.options import RunOptions
from ..api.values import InputValue
from ..runtime.plan.errors import InputError, UnsupportedError
from ..session.session import InferenceSession
from .call_layout import CallLayout
from .export import ExportedModule, export_module
from .tensors import as_torch

#: Bytes of weights up to which a model is one message of protobuf, which ends at 2 GiB
LARGEST_MESSAGE = 3 << 29


class TorchSession(InferenceSession):
    """An :class:`InferenceSession` of an exported module.

    Calling it takes the arguments of the module and gives its results, in the same structure.  :meth:`run` takes feeds
    by name and gives a list, as for any session; outputs on the host are PyTorch tensors.
    """

    def __init__(self, exported: ExportedModule, options: Mapping[str, Any]) -> None:
        self._exported = exported
        defaults = {"dynamic": exported.ranges} if exported.ranges and exported.is_bounded else {}
        super().__init__(self._model_of(exported.program), **{**defaults, **options})

    def _model_of(self, program: Any) -> Any:
        """Return the program, or the path of its file, which lives as long as the session, if it is large."""
        tensors = (value.const_value for value in program.model.graph.initializers.values())
        if sum(tensor.nbytes for tensor in tensors if tensor is not None) <= LARGEST_MESSAGE:
            return program
        folder = tempfile.mkdtemp(prefix="shaderloom-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / "model.onnx"
        program.save(path, external_data=True)
        return path

    @classmethod
    def of_module(
        cls,
        module: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dynamic_shapes: Any,
        options: Mapping[str, Any],
    ) -> TorchSession:
        """Export a module and return its session; see :func:`shaderloom.from_torch`."""
        if not isinstance(module, torch.nn.Module):
            raise InputError(
                f"a torch.nn.Module is needed, not {type(module).__name__}", hint="make the function its forward"
            )
        if module.training:
            raise InputError("the module is in training mode", hint="call module.eval() first")
        layout = CallLayout.of(module.forward, args, kwargs, dynamic_shapes)
        exported = export_module(module, layout, layout.inputs(args, kwargs))
        if exported.mutations:
            target = exported.mutations[0]
            name = layout.names[target] if isinstance(target, int) else target
            raise UnsupportedError(
                f"the module writes to '{name}', which a session cannot do for it",
                hint="return the new value in place of writing it, or use torch.compile(backend='shaderloom')",
            )
        return cls(exported, options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with the arguments of the module and return its results; raise :class:`InputError` if they differ from
        those of the example in more than the elements and the dynamic sizes of tensors.
        """
        exported = self._exported
        inputs = exported.arguments.inputs(args, kwargs)
        return exported.results.unflatten(self.run(None, dict(zip(exported.inputs, inputs))), inputs)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, InputValue],
        run_options: RunOptions | None = None,
        *,
        outputs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Run as :meth:`InferenceSession.run` does; outputs on the host are PyTorch tensors."""
        return [as_torch(each) for each in super().run(output_names, input_feed, run_options, outputs=outputs)]
