"""Binding of a run to memory outside its executor: the caller's arrays and tensors.

A tensor is bound in place of the plan's own input or output buffer where WebGPU allows it; else it is copied on the
device, in the run's own submission.  The rules:

* The offset must be aligned, and the padding that kernels touch must lie inside the buffer.  An output in a buffer of
  the caller must fill its padding, because a kernel may overwrite what follows.
* An input in a buffer that an output is written to is copied first: the plan may write before it has read.
* Outputs that share a buffer are computed apart and copied: one call may read the first and write the second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Union

import numpy as np

from ..device.device import Device
from ..memory.buffers import COPY_DST, COPY_SRC
from ..memory.storage import OutputPool, Storage
from ..memory.tensor import Tensor
from ..plan.dtypes import BY_NAME, interface_dtype
from ..plan.errors import InputError, InternalError
from ..plan.plan import Plan
from ..plan.record import record
from .ports import Feed, PortSize, constant_array

#: Where an output goes: ``"cpu"`` makes an array, ``"gpu-buffer"`` a tensor, a tensor takes the result
Target = Union[str, Tensor]

LOCATIONS = ("cpu", "gpu-buffer")


@record
class Copy:
    """A copy on the device to or from a tensor's storage; ``buffer`` names the plan's side."""

    buffer: str
    storage: Storage
    size: int


@record
class Beginning:
    """A copy of an input to the buffer of an output before the first call."""

    input: str
    storage: Storage | None  #: where the input is, None where it is in a buffer of the plan's own
    output: str
    size: int


@dataclass(slots=True)
class Attachment:
    """One run's connections.  Names of buffers are those of :mod:`.plan`.

    Inputs are bound, written or copied before states begin: an output that begins as an input
    (:class:`.plan.OutputState`) is in the same memory, or takes a copy.
    """

    spans: dict[str, Storage] = field(default_factory=dict)  #: buffers bound directly in place of the plan's
    writes: list[tuple[str, np.ndarray]] = field(default_factory=list)  #: host data, before the pass
    copies_in: list[Copy] = field(default_factory=list)
    #: outputs that begin as copies, each with the input's memory, or None for the plan's own buffer
    beginnings: list[Beginning] = field(default_factory=list)
    copies_out: list[Copy] = field(default_factory=list)
    reads: dict[str, str] = field(default_factory=dict)  #: output -> buffer to read back
    results: dict[str, Any] = field(default_factory=dict)  #: outputs that are known before the run
    pins: list[Storage] = field(default_factory=list)
    created: list[Tensor] = field(default_factory=list)

    def identity(self) -> tuple[tuple[str, int, int], ...]:
        """Return a key that is equal for runs that can use the same bind groups."""
        return tuple((name, storage.gpu.uid, storage.offset) for name, storage in self.spans.items())

    def pin(self, storage: Storage) -> None:
        storage.pin()
        self.pins.append(storage)

    def unpin(self) -> None:
        for storage in self.pins:
            storage.unpin()
        self.pins.clear()

    def abandon(self) -> None:
        """Dispose of the tensors that were created for the outputs of a failed run."""
        for tensor in self.created:
            tensor.dispose()


class Attacher:
    """Makes the attachments of one plan's runs."""

    def __init__(self, device: Device, plan: Plan, pool: OutputPool, make_buffer: Callable[[int, str], Any]) -> None:
        self.device = device
        self.pool = pool
        self.make_buffer = make_buffer
        self.inputs = tuple(port.name for port in plan.inputs)
        self.outputs = frozenset(port.name for port in plan.outputs)
        self.states = {state.input: state.output for state in plan.states}
        self.constants = {constant.output: constant_array(constant) for constant in plan.constants}
        self._alignment = device.profile.storage_alignment
        self._sources = final_sources(plan)

    def is_computed(self, output: str) -> bool:
        """Return whether kernels write the output; else it is constant or a copy."""
        return output not in self.constants and output not in self._sources

    def source(self, output: str) -> str:
        """Return the buffer that holds an output: its own, or that of the value that it aliases."""
        return self._sources.get(output, f"output:{output}")

    def fits(self, storage: Storage, padded: int) -> bool:
        """Return whether calls can bind a storage of the caller's in place of a buffer of ``padded`` bytes."""
        return storage.offset % self._alignment == 0 and padded <= storage.size

    def attach(
        self,
        feeds: Mapping[str, Feed],
        targets: Mapping[str, Target],
        inputs: Mapping[str, PortSize],
        outputs: Mapping[str, PortSize],
        uploads: Mapping[str, Storage] = MappingProxyType({}),
    ) -> Attachment:
        """Decide for every input and output how it is bound to the plan; pin the storages.

        ``uploads`` has what was written already of the feeds that are on the host.
        Raises :class:`InputError` for a tensor of another device, dtype or shape, and :class:`ClosedError` for one that
        is gone; nothing is pinned or made then.
        """
        run = _Run(self, feeds, targets, inputs, outputs, uploads)
        try:
            run.attach()
        except BaseException:
            run.result.unpin()
            run.result.abandon()
            raise
        return run.result


@dataclass(slots=True)
class _Run:
    """One run that is being attached; sizes are those of its inputs and outputs."""

    plan: Attacher
    feeds: Mapping[str, Feed]
    targets: Mapping[str, Target]
    inputs: Mapping[str, PortSize]
    outputs: Mapping[str, PortSize]
    uploads: Mapping[str, Storage]
    result: Attachment = field(default_factory=Attachment)
    users: dict[int, int] = field(default_factory=dict)  #: how many outputs go to each buffer of the caller's

    def attach(self) -> None:
        self._check_targets()
        for name in self.plan.inputs:
            if name in self.plan.states:
                self._attach_state(name)
            else:
                self._attach_input(name)
        for name, target in self.targets.items():
            if target == "cpu":
                self._attach_host_output(name)
            else:
                self._attach_output(name, target)

    def _pin(self, tensor: Tensor, name: str) -> Storage:
        device = self.plan.device
        if tensor.device.gpu is not device.gpu:
            raise InputError(
                f"the tensor is on {tensor.device.name}, the session on {device.name}, another device",
                tensor=name,
                hint="make the tensor with device=session.device",
            )
        storage = tensor._storage
        self.result.pin(storage)
        if storage.borrowed and tensor.size:
            storage.check_alive(device)
        return storage

    def _check_targets(self) -> None:
        """Check the memory of the outputs, and count the outputs that share a buffer."""
        ranges: list[tuple[int, int, int, str]] = []
        for name, target in self.targets.items():
            if name not in self.plan.outputs:
                raise InternalError(f"the plan has no output '{name}'")
            if isinstance(target, str):
                if target not in LOCATIONS:
                    raise InputError(f"there is no location '{target}'", tensor=name, hint="use 'cpu' or 'gpu-buffer'")
                continue
            size = self.outputs[name]
            if target._dtype.name != size.dtype or target.shape != size.shape:
                raise InputError(
                    f"the tensor for the output is {target._dtype.name}{list(target.shape)}, "
                    f"the result {size.dtype}{list(size.shape)}",
                    tensor=name,
                )
            if target.location != "gpu-buffer":
                raise InputError("the tensor for the output is on the host", tensor=name)
            storage = self._pin(target, name)
            if not size.elements:
                continue
            key = storage.gpu.uid
            self.users[key] = self.users.get(key, 0) + 1
            for other, begin, end, other_name in ranges:
                if other == key and storage.offset < end and begin < storage.offset + size.border:
                    raise InputError(f"shares memory with the output '{other_name}'", tensor=name)
            ranges.append((key, storage.offset, storage.offset + size.border, name))

    def _attach_state(self, name: str) -> None:
        """Attach an input that an output begins as: nothing is copied if both are in the same memory."""
        output, feed, size = self.plan.states[name], self.feeds[name], self.inputs[name]
        storage = self.uploads.get(name)
        target = self.targets.get(output)
        if isinstance(feed, Tensor) and feed.location == "gpu-buffer" and size.elements:
            storage = self._pin(feed, name)
            if isinstance(target, Tensor) and self._is_direct(target._storage, size):
                if target._storage.gpu is storage.gpu and target._storage.offset == storage.offset:
                    self.result.spans[f"input:{name}"] = storage
                    return
        if storage is None or storage.gpu.uid in self.users:
            self._attach_input(name)
            storage = None
        elif not storage.gpu.usage & COPY_SRC:
            raise _uncopied(name)
        if size.elements:
            self.result.beginnings.append(Beginning(f"input:{name}", storage, f"output:{output}", size.border))

    def _attach_input(self, name: str) -> None:
        buffer, feed, size = f"input:{name}", self.feeds[name], self.inputs[name]
        if isinstance(feed, Tensor) and feed.location == "gpu-buffer":
            storage = self._pin(feed, name)
            if not size.elements:
                return
            if storage.gpu.uid not in self.users and self.plan.fits(storage, size.padded):
                self.result.spans[buffer] = storage
                return
            if not storage.gpu.usage & COPY_SRC:
                raise _uncopied(name)
            self.result.copies_in.append(Copy(buffer, storage, size.border))
        elif name in self.uploads:
            self.result.spans[buffer] = self.uploads[name]
        else:
            array = feed._host if isinstance(feed, Tensor) else feed
            assert array is not None, "a tensor that is not on the device has its data on the host"
            self.result.writes.append((buffer, array))

    def _is_direct(self, storage: Storage, size: PortSize) -> bool:
        """Return whether calls can write an output to a storage of the caller's themselves."""
        fits = self.users.get(storage.gpu.uid, 0) == 1 and self.plan.fits(storage, size.padded)
        return fits and (not storage.borrowed or size.border == size.padded)

    def _attach_output(self, name: str, target: Target) -> None:
        """Attach an output that stays on the device."""
        plan, result, size = self.plan, self.result, self.outputs[name]
        if isinstance(target, Tensor):
            tensor = target
            storage = target._storage
            direct = self._is_direct(storage, size)
        else:
            storage = plan.pool.take(name, size.padded, lambda room: plan.make_buffer(room, name))
            tensor = Tensor(plan.device, storage, BY_NAME[size.dtype], size.shape)
            result.created.append(tensor)
            result.pin(storage)
            direct = True
        result.results[name] = tensor
        if not size.elements:
            return
        if plan.is_computed(name) and direct:
            result.spans[f"output:{name}"] = storage
            return
        if not storage.gpu.usage & COPY_DST:
            raise InputError("the result must be copied, but the buffer was made without COPY_DST", tensor=name)
        source = plan.source(name)
        constant = plan.constants.get(source.removeprefix("output:")) if source.startswith("output:") else None
        if constant is not None:
            result.writes.append((source, constant))
        result.copies_out.append(Copy(source, storage, size.border))

    def _attach_host_output(self, name: str) -> None:
        results, size = self.result.results, self.outputs[name]
        if not size.elements:
            results[name] = np.empty(size.shape, interface_dtype(BY_NAME[size.dtype]))
            return
        source = self.plan.source(name)
        kind, _, port = source.partition(":")
        present = self.feeds[port] if kind == "input" else self.plan.constants.get(port) if kind == "output" else None
        held = self.inputs[port] if kind == "input" else self.outputs.get(port)
        if isinstance(present, np.ndarray) and held is not None:
            if (held.dtype, held.shape) == (size.dtype, size.shape):
                results[name] = np.array(present, order="C")
                return
            if kind == "output":  # of an alias that has another type, only bytes are the same
                self.result.writes.append((source, present))
        self.result.reads[name] = source


def _uncopied(name: str) -> InputError:
    return InputError("the tensor must be copied, but its buffer was made without the usage COPY_SRC", tensor=name)


def final_sources(plan: Plan) -> dict[str, str]:
    """Return for each output that is an alias the buffer that its chain of aliases leads to, in linear time."""
    direct = {f"output:{alias.output}": alias.source for alias in plan.aliases}
    final: dict[str, str] = {}
    for source in direct:
        chain = []
        while source in direct and source not in final:
            chain.append(source)
            source = direct[source]
        final |= dict.fromkeys(chain, final.get(source, source))
    return {name.removeprefix("output:"): source for name, source in final.items()}


def check_locations(locations: str | Mapping[str, str] | None, outputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the location of every output, from one for all or one by name.

    Raises :class:`InputError` for an unknown location or output.
    """
    if locations is None:
        locations = "cpu"
    by_output = dict.fromkeys(outputs, locations) if isinstance(locations, str) else {**locations}
    for name, location in by_output.items():
        if name not in outputs:
            raise InputError(f"the model has no output '{name}'", hint=f"its outputs are {', '.join(outputs)}")
        if location not in LOCATIONS:
            raise InputError(f"there is no location '{location}'", tensor=name, hint="use 'cpu' or 'gpu-buffer'")
    return {name: by_output.get(name, "cpu") for name in outputs}
