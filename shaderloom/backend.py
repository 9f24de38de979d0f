"""Shaderloom as a backend of ONNX: the interface by which onnx's own test suite, and tools like it, run models.

A *device* is ``"WGPU"`` or ``"GPU"`` (the best adapter), ``"WGPU:2"`` or ``"WGPU:llvmpipe"`` (an adapter by its index
or a part of its name), ``"CPU"``, or a preference of two: ``"WGPU+CPU"``.  The keyword ``providers`` has precedence, so
that a caller who knows only the names of onnx can choose as well: :class:`onnx.backend.test.BackendTest` asks for "CPU"
and "CUDA", and passes ``test_kwargs`` on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from .api.providers import get_available_providers
from .runtime.plan.errors import DECLARED, InputError, ShaderloomError
from .session.session import InferenceSession

_PROVIDERS = {"WGPU": "wgpu", "GPU": "wgpu", "CPU": "cpu"}


def parse_device(device: str) -> tuple[list[str], str | int | None]:
    """Parse a device string into its providers, in order, and the adapter.  Raises :class:`InputError`."""
    providers: list[str] = []
    adapter: str | int | None = None
    for part in device.split("+"):
        name, _, choice = part.partition(":")
        provider = _PROVIDERS.get(name.upper())
        if provider is None:
            raise InputError(f"there is no device '{part}'", hint="devices are WGPU, WGPU:ADAPTER, CPU and WGPU+CPU")
        if choice and provider == "wgpu":
            adapter = int(choice) if choice.isdecimal() else choice
        providers.append(provider)
    return providers, adapter


class PreparedModel(BackendRep):
    """A model that is ready to run any number of times.  Close its ``session``, or let it be collected."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._inputs = [port.name for port in session.get_inputs()]
        self._outputs = [port.name for port in session.get_outputs()]
        self._results = namedtupledict("Outputs", self._outputs)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model and return its outputs as a named tuple.

        ``inputs`` is a sequence in the order of the model's inputs (those without an initializer), a mapping by name,
        or the only input.  Raises :class:`InputError` for a wrong number of them.
        """
        if kwargs:
            raise InputError(f"run takes no option '{next(iter(kwargs))}'")
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        else:
            arrays = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            if len(arrays) != len(self._inputs):
                raise InputError(f"the model has {len(self._inputs)} inputs, {len(arrays)} were given", hint=DECLARED)
            feeds = dict(zip(self._inputs, arrays))
        results: tuple[Any, ...] = self._results(*self.session.run(None, feeds))
        return results

    def close(self) -> None:
        self.session.close()


class ShaderloomBackend(Backend):
    """Runs models of any opset that the installed onnx supports; the module documents the names of devices."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "WGPU", **kwargs: Any) -> bool:
        """Return whether the device can run the model, as far as that is decidable without input values.

        Where input shapes are not declared, only operators and element types of inputs are checked.
        """
        try:
            with cls._session(model, device, kwargs) as session:
                if session.get_providers() == ["wgpu"] and session.default_shapes():
                    return session.prepare()
        except ShaderloomError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "WGPU", **kwargs: Any) -> PreparedModel:
        """Check the model and load it.

        ``kwargs`` go to :class:`~.session.InferenceSession` (``providers``, ``cache``, ``options``, ...), whose errors
        this raises.  Tolerances, which the suite passes to everyone, are ignored.
        """
        super().prepare(model, device)  # the checker of onnx
        return PreparedModel(cls._session(model, device, kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "WGPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepare the model, run it once, and free its resources."""
        prepared = cls.prepare(model, device, **kwargs)
        try:
            return prepared.run(inputs)
        finally:
            prepared.close()

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "WGPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node.

        ``inputs`` are arrays for the inputs that the node names, or a mapping by name.  ``opset_version`` is that of
        the node's domain: by default the newest of the standard, or 1 of another domain.
        """
        version = kwargs.pop("opset_version", None)
        names = [name for name in dict.fromkeys(node.input) if name]
        if isinstance(inputs, Mapping):
            feeds = {name: np.asarray(inputs[name]) for name in names}
        else:
            arrays = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            if len(arrays) != len(names):
                raise InputError(f"the node has {len(names)} inputs, {len(arrays)} were given")
            feeds = {name: np.asarray(array) for name, array in zip(names, arrays)}
        # not run_model: the checker requires output shapes, which inference may not yield
        prepared = PreparedModel(cls._session(node_model(node, feeds, version, outputs_info), device, kwargs))
        try:
            return prepared.run(feeds)
        finally:
            prepared.close()

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether every provider that the device string names is available on this machine."""
        try:
            providers, _ = parse_device(device)
        except InputError:
            return False
        return set(providers) <= set(get_available_providers())

    @staticmethod
    def _session(model: onnx.ModelProto, device: str, options: Mapping[str, Any]) -> InferenceSession:
        arguments = {name: value for name, value in options.items() if name not in ("rtol", "atol")}
        if "providers" not in arguments:
            arguments["providers"], adapter = parse_device(device)
            if adapter is not None:
                arguments.setdefault("device", adapter)
        return InferenceSession(model, **arguments)


def node_model(
    node: onnx.NodeProto,
    feeds: Mapping[str, np.ndarray],
    version: int | None,
    outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None,
) -> onnx.ModelProto:
    """Build a model of a single node; output types that are not passed are inferred by onnx where it can."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    opsets = [helper.make_opsetid("", onnx.defs.onnx_opset_version() if domain or version is None else version)]
    if domain:
        opsets.append(helper.make_opsetid(domain, version or 1))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    names = [name for name in node.output if name]
    if outputs_info is None:
        outputs = [onnx.ValueInfoProto(name=name) for name in names]
    else:
        outputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in zip(names, outputs_info)
        ]
    graph = helper.make_graph([node], "node", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model if outputs_info is not None else onnx.shape_inference.infer_shapes(model)


is_compatible = ShaderloomBackend.is_compatible
prepare = ShaderloomBackend.prepare
run_model = ShaderloomBackend.run_model
run_node = ShaderloomBackend.run_node
supports_device = ShaderloomBackend.supports_device
