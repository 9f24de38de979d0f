"""``OrtValue`` and ``IOBinding`` under onnxruntime's names.

An address, as an integer, is one of the host's memory.  For memory of a device these take a ``wgpu.GPUBuffer`` or a
:class:`Tensor`: an address says nothing about the device that it belongs to.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, Union

import numpy as np

from ..runtime.execution.attachment import Target
from ..runtime.memory.host_arrays import DLPACK_HOST, export_array, host_array, shared_array
from ..runtime.memory.tensor import Tensor
from ..runtime.plan.dtypes import BY_NAME, from_numpy, from_onnx, interface_dtype
from ..runtime.plan.errors import InputError, ShaderloomError, UnsupportedError

#: device types: ours, those of ONNX Runtime's providers for WebGPU, and those of vendors, which mean the device, too
_GPU_NAMES = ("wgpu", "webgpu", "gpu", "gpu-buffer", "cuda", "dml", "rocm", "hip", "migraphx", "cann", "mps")
_ONNX_TYPE_NAMES = {"float32": "float", "float64": "double"}
_TYPE_NAMES = {theirs: ours for ours, theirs in _ONNX_TYPE_NAMES.items()}
#: The number of the ONNX element type of texts
_STRING = 8
#: A type of tensors, or of a sequence or an optional value of them
_TENSORS = re.compile(r"^(?:seq\(|optional\()*tensor\((\w+)\)+$")
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


@functools.cache
def _runtime_error(kind: type[ShaderloomError]) -> type[ShaderloomError]:
    """Return a class of errors that are of ``kind`` and :class:`RuntimeError`, pickled by that."""

    def reduced(error: ShaderloomError) -> Any:
        return _restored, (kind, error.args), error.__dict__

    return type(kind.__name__, (kind, RuntimeError), {"__module__": kind.__module__, "__reduce__": reduced})


def _restored(kind: Any, arguments: tuple[str]) -> ShaderloomError:
    return _runtime_error(kind)(*arguments)


def _raises_runtime_errors(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Return ``function``, whose errors are also a :class:`RuntimeError`: what onnxruntime raises for every fault of
    memory, values and bindings, those of their runs included, where sessions raise a class for each status.
    """

    @functools.wraps(function)
    def wrapper(*arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        try:
            return function(*arguments, **options)
        except ShaderloomError as error:
            kind: Any = type(error)
            if not issubclass(kind, RuntimeError):
                error.__class__ = _runtime_error(kind)
            raise

    return wrapper


def _is_gpu(device_type: str) -> bool:
    """Return whether a device type denotes the GPU; raise :class:`InputError` for an unknown one."""
    if device_type.lower() in _GPU_NAMES:
        return True
    if device_type.lower() == "cpu":
        return False
    raise InputError(f"there is no device type '{device_type}'", hint="use 'cpu' or 'wgpu'")


def _element_type(element_type: Any) -> np.dtype[Any]:
    """Return the numpy dtype for a dtype, a dtype's name, or the number of an ONNX element type."""
    if isinstance(element_type, int) and not isinstance(element_type, bool):
        return interface_dtype(from_onnx(element_type))
    if isinstance(element_type, str) and element_type in BY_NAME:
        return interface_dtype(BY_NAME[element_type])
    return interface_dtype(from_numpy(element_type))


class OrtValue:
    """An array on the host or a tensor on the device, with the interface of onnxruntime's class of this name.

    Results of runs are also sequences and maps, which are lists and dicts, and None for an absent optional value;
    ``declared`` is the type of such a value in onnxruntime's words.  ``numpy`` returns these as they are; what only a
    tensor has is a :class:`RuntimeError` for them, as with onnxruntime.
    """

    def __init__(self, content: Any, declared: str = "") -> None:
        self._ortvalue_content = content
        self._declared = declared

    def __repr__(self) -> str:
        if self.is_tensor():
            return f"<OrtValue {self.data_type()} {self.shape()} on {self.device_name()}>"
        return f"<OrtValue {self._declared or type(self._ortvalue_content).__name__} on cpu>"

    @staticmethod
    @_raises_runtime_errors
    def ortvalue_from_numpy(
        array: Any, device_type: str = "cpu", device_id: int = 0, *, device: Any = None
    ) -> OrtValue:
        """Return a value that is the array itself on ``"cpu"``, a copy on ``"wgpu"``; ``device`` as for sessions."""
        host = host_array(array)
        return OrtValue(Tensor.from_numpy(host, device) if _is_gpu(device_type) else host)

    @staticmethod
    @_raises_runtime_errors
    def ortvalue_from_numpy_with_onnx_type(data: np.ndarray, onnx_element_type: int) -> OrtValue:
        """Return a value whose elements are the bytes of ``data`` as another ONNX type of the same size."""
        return OrtValue(data.view(_element_type(onnx_element_type)))

    @staticmethod
    @_raises_runtime_errors
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0, *, device: Any = None
    ) -> OrtValue:
        """Return a value whose elements are zero; ``element_type`` is a dtype or the number of an ONNX type."""
        dtype = _element_type(element_type)
        if _is_gpu(device_type):
            return OrtValue(Tensor.empty(shape, dtype, device))
        return OrtValue(np.zeros(tuple(shape), dtype))

    @staticmethod
    @_raises_runtime_errors
    def ort_value_from_sparse_tensor(*_: Any) -> OrtValue:
        """Raise :class:`UnsupportedError`: sparse tensors are not supported."""
        raise UnsupportedError("sparse tensors are not supported")

    @property
    def tensor(self) -> Tensor | None:
        """The :class:`Tensor` of a value on the device, None for one on the host."""
        return self._ortvalue_content if isinstance(self._ortvalue_content, Tensor) else None

    def numpy(self) -> np.ndarray:
        """Return the elements on the host: the array itself, or a copy of a tensor on the device."""
        content = self._ortvalue_content
        return content.numpy() if isinstance(content, Tensor) else content

    @_raises_runtime_errors
    def update_inplace(self, array: np.ndarray) -> None:
        """Replace the elements by those of an array of the same dtype and shape."""
        content = self._elements()
        if isinstance(content, Tensor):
            content.update(array)
            return
        source = host_array(array)
        if source.dtype != content.dtype or source.shape != content.shape:
            raise InputError(
                f"{source.dtype.name}{list(source.shape)} does not fit {content.dtype.name}{list(content.shape)}"
            )
        np.copyto(content, source)

    @_raises_runtime_errors
    def shape(self) -> list[int]:
        """Return the size of each dimension."""
        return list(self._elements().shape)

    @_raises_runtime_errors
    def tensor_size_in_bytes(self) -> int:
        """Return the bytes of the elements."""
        return int(self._elements().nbytes)

    @_raises_runtime_errors
    def element_type(self) -> int:
        """Return the number of the ONNX element type, of a sequence of tensors that of its tensors."""
        match = _TENSORS.search(self.data_type())
        if match is None:
            raise InputError(f"a value of type {self.data_type()} has no element type")
        name = match[1]
        return _STRING if name == "string" else BY_NAME[_TYPE_NAMES.get(name, name)].onnx

    @_raises_runtime_errors
    def data_type(self) -> str:
        """Return the type in onnxruntime's words, like ``tensor(float)`` or ``seq(tensor(float))``."""
        if self._declared and not self.is_tensor():
            return self._declared
        dtype = self._elements().dtype
        if dtype.kind in "OSU":
            return "tensor(string)"
        name = from_numpy(dtype).name
        return f"tensor({_ONNX_TYPE_NAMES.get(name, name)})"

    def device_name(self) -> str:
        """Return ``"cpu"`` or ``"wgpu"``."""
        content = self._ortvalue_content
        return "wgpu" if isinstance(content, Tensor) and content.location == "gpu-buffer" else "cpu"

    def has_value(self) -> bool:
        """Return whether it is anything but an absent optional value."""
        return self._ortvalue_content is not None

    def is_tensor(self) -> bool:
        """Return whether it is a dense tensor."""
        return isinstance(self._ortvalue_content, (np.ndarray, Tensor))

    def is_sparse_tensor(self) -> bool:
        """Return False: sparse tensors are not supported."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Return whether it is a sequence of tensors, which is a list of arrays here."""
        content: Any = self._ortvalue_content
        return isinstance(content, list) and all(isinstance(each, np.ndarray) for each in content)

    @_raises_runtime_errors
    def data_ptr(self) -> int:
        """Return the address of a value on the host; raise :class:`UnsupportedError` for one on the device."""
        content = self._elements()
        if isinstance(content, Tensor):
            raise UnsupportedError("a buffer on the device has no address", hint="use .tensor.gpu_buffer")
        return int(content.ctypes.data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        content = self._ortvalue_content
        if isinstance(content, Tensor):
            return content.__array__(dtype, copy)
        return content.__array__(dtype, copy=copy) if dtype is not None else np.array(content, copy=copy)

    @classmethod
    def from_dlpack(cls, data: Any) -> OrtValue:
        """Return a value that shares the memory of an array on the host, such as a PyTorch tensor.

        Raises :class:`InputError` for memory of a device.
        """
        return cls(shared_array(data))

    def _elements(self) -> Any:
        """Return the tensor or array; raise :class:`InputError` for a value that is none."""
        if not self.is_tensor():
            kind = self._declared or type(self._ortvalue_content).__name__
            raise InputError(
                f"the value is no tensor: it is {kind}", hint="numpy() returns lists and dicts as they are"
            )
        return self._ortvalue_content

    @_raises_runtime_errors
    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """Export the elements on the host as :meth:`Tensor.__dlpack__` does."""
        content = self._elements()
        if isinstance(content, Tensor):
            return content.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
        return export_array(content, max_version, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        content = self._ortvalue_content
        return content.__dlpack_device__() if isinstance(content, Tensor) else DLPACK_HOST


class BoundSession(Protocol):
    """The interface that a binding requires of its :class:`InferenceSession`."""

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
        *,
        outputs: Mapping[str, Any] | None = None,
    ) -> list[Any]: ...

    def get_inputs(self) -> list[Any]: ...

    def get_outputs(self) -> list[Any]: ...

    def get_overridable_initializers(self) -> list[Any]: ...

    def synchronize(self) -> None: ...


class IOBinding:
    """Inputs and outputs bound to memory, for :meth:`InferenceSession.run_with_iobinding`.

    Bindings stay until they are cleared.  An output bound without memory gets new memory with each run; an output that
    was not bound is not computed for the caller.
    """

    def __init__(self, session: BoundSession) -> None:
        self._session = session
        self._feeds: dict[str, Any] = {}
        self._targets: dict[str, Union[Target, OrtValue]] = {}
        self._results: dict[str, OrtValue] = {}

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(names) or "none" for names in (self._feeds, self._targets))
        return f"<IOBinding of inputs {inputs}; outputs {outputs}>"

    @_raises_runtime_errors
    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an array to an input."""
        self._check(name, "input")
        self._feeds[name] = host_array(arr_on_cpu)

    @_raises_runtime_errors
    def bind_input(
        self,
        name: str,
        device_type: Any = "wgpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: Any = None,
    ) -> None:
        """Bind a :class:`Tensor` (also as second argument) or a ``wgpu.GPUBuffer`` with its type and shape."""
        self._check(name, "input")
        self._feeds[name] = self._memory(device_type, element_type, shape, buffer_ptr)

    @_raises_runtime_errors
    def bind_output(
        self,
        name: str,
        device_type: Any = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: Any = None,
    ) -> None:
        """Bind an output to memory, or without memory to a location: ``"cpu"`` or ``"wgpu"``."""
        self._check(name, "output")
        if buffer_ptr is None and not isinstance(device_type, Tensor):
            self._targets[name] = "gpu-buffer" if _is_gpu(device_type) else "cpu"
        else:
            self._targets[name] = self._memory(device_type, element_type, shape, buffer_ptr)

    @_raises_runtime_errors
    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an :class:`OrtValue` to an input."""
        self._check(name, "input")
        self._feeds[name] = ortvalue

    @_raises_runtime_errors
    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to the memory of an :class:`OrtValue`, which has its dtype and shape."""
        self._check(name, "output")
        self._targets[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Do nothing: copies and runs are in order in the device's queue."""

    def synchronize_outputs(self) -> None:
        """Wait until the device has finished what was submitted."""
        self._session.synchronize()

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run in the order in which they were bound."""
        return [self._results[name] for name in self._targets if name in self._results]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """Return the outputs of the last run, as :meth:`get_outputs` does, in the order in which they were bound."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """Return the outputs of the last run as arrays in the order in which they were bound."""
        return [value.numpy() for value in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        """Unbind every input."""
        self._feeds.clear()

    def clear_binding_outputs(self) -> None:
        """Unbind every output, and drop the outputs of the last run."""
        self._targets.clear()
        self._results.clear()

    @_raises_runtime_errors
    def run(self, run_options: Any = None) -> None:
        """Run the session with what is bound."""
        if not self._targets:
            raise InputError("no output is bound", hint="bind_output(name) binds one")
        names = list(self._targets)
        memory: dict[str, Any] = {}
        for name, target in self._targets.items():
            memory[name] = target._ortvalue_content if isinstance(target, OrtValue) else target
        results = self._session.run(names, self._feeds, run_options, outputs=memory)
        for name, value in zip(names, as_values(self._session, names, results)):
            target = self._targets[name]
            self._results[name] = target if isinstance(target, OrtValue) else value

    def _check(self, name: str, kind: str) -> None:
        session = self._session
        ports = (
            session.get_outputs()
            if kind == "output"
            else [*session.get_inputs(), *session.get_overridable_initializers()]
        )
        names = [port.name for port in ports]
        if name not in names:
            raise InputError(f"the model has no {kind} '{name}'", hint=f"its {kind}s are {', '.join(names) or 'none'}")

    @staticmethod
    def _memory(device_type: Any, element_type: Any, shape: Sequence[int] | None, buffer: Any) -> Any:
        """Return the tensor or array that the arguments describe."""
        for argument in (device_type, buffer):
            if isinstance(argument, (Tensor, OrtValue)):
                return argument
        if buffer is None or element_type is None or shape is None:
            raise InputError("a buffer needs its element type and shape")
        if isinstance(buffer, np.ndarray):
            return buffer
        if isinstance(buffer, int):
            if _is_gpu(device_type):
                raise InputError(
                    "an address does not say which device it belongs to",
                    hint="pass a wgpu.GPUBuffer, a Tensor or an array",
                )
            return _at_address(buffer, _element_type(element_type), shape)
        if not _is_gpu(device_type):
            raise InputError(f"memory on '{device_type}' is bound as an array", hint="use bind_cpu_input")
        return Tensor.from_gpu_buffer(buffer, _element_type(element_type), shape)


def _at_address(address: int, dtype: np.dtype[Any], shape: Sequence[int]) -> np.ndarray:
    """Return an array in the caller's memory, which the caller keeps alive."""
    import ctypes

    size = math.prod(shape) * dtype.itemsize
    return np.frombuffer(memoryview((ctypes.c_char * size).from_address(address)).cast("B"), dtype).reshape(
        tuple(shape)
    )


def as_values(session: BoundSession, names: Sequence[str] | None, results: Sequence[Any]) -> list[OrtValue]:
    """Return the results of a run; those that are no tensors have the types that the model declares."""
    if all(isinstance(result, (np.ndarray, Tensor)) for result in results):
        return [OrtValue(result) for result in results]
    types = {port.name: port.type for port in session.get_outputs()}
    return [OrtValue(result, types[name]) for name, result in zip(names or types, results)]


def as_feed_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``run_with_ort_values`` as feeds; raise :class:`InputError` unless each value is an
    :class:`OrtValue`.
    """
    for name, value in values.items():
        if not isinstance(value, OrtValue):
            raise InputError(f"an OrtValue is needed, not {type(value).__name__}", tensor=name)
    return dict(values)
