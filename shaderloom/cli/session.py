"""Sessions and inputs from command line arguments, for the commands that run a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.plan.errors import InputError
from .common import unreadable
from .options import InputOptions, StorageOptions

if TYPE_CHECKING:
    import numpy as np

    from ..model.compiled import Progress
    from ..model.header import NodeArg
    from ..session.session import InferenceSession


def keep_model(target: Path, model: Path) -> None:
    """Raise :class:`InputError` if a result would overwrite the model that it is computed from."""
    if target.exists() and model.exists() and target.samefile(model):
        raise InputError(f"'{target}' is the model itself", hint="name another file")


def open_session(
    model: Path,
    *,
    device: str | None,
    dynamic: dict[str, tuple[int, ...]] | str,
    cache: bool,
    progress: Progress,
    storage: StorageOptions,
    trust: bool = False,
) -> InferenceSession:
    """Open a session of the model or the bundle; ``trust`` is for bundles alone."""
    from ..runtime.bundle.files import is_bundle

    if is_bundle(model):
        from ..bundles.session import load_bundle

        if dynamic != "auto":
            raise InputError("--dynamic is decided when a bundle is compiled", hint="leave it out")
        if storage.storage:
            name = next(iter(storage.storage))
            option = "--f16" if name == "precision" else f"--{name}"
            raise InputError(f"{option} is decided when a bundle is compiled", hint="leave it out")
        return load_bundle(model, device=device, progress=progress, trust=trust)
    if trust:
        raise InputError("--trust is for bundles: a model's shaders are generated here", hint="leave it out")
    from ..session.session import InferenceSession

    return InferenceSession(
        model,
        device=device,
        dynamic=dynamic,
        cache=cache,
        progress=progress,
        options=storage.storage,
    )


def open_with_cpu(model: Path, *, device: str | None, **options: Any) -> InferenceSession:
    """Open a session that falls back to the cpu for what wgpu cannot run; raise if the selected device is missing."""
    from ..runtime.device.opening import open_device
    from ..session.session import InferenceSession

    return InferenceSession(model, providers=["wgpu", "cpu"], device=open_device(device), **options)


def make_feeds(
    session: InferenceSession, inputs: InputOptions, arrays: Mapping[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """Build an array for every input: one of ``arrays``, that of its file, or a random one."""
    import numpy as np

    arrays = arrays or {}
    values, shapes = inputs.values, {**inputs.shapes, **{name: array.shape for name, array in arrays.items()}}
    ports = {port.name: port for port in session.get_inputs()}
    optional = {port.name: port for port in session.get_overridable_initializers()}
    for name in (*values, *shapes):
        if name not in ports and name not in optional:
            raise InputError(f"the model has no input '{name}'", hint=f"its inputs are {', '.join(ports) or 'none'}")
    defaults = session.default_shapes()
    generator = np.random.default_rng(inputs.seed)
    feeds = {}
    for name, port in {**ports, **{name: optional[name] for name in values if name in optional}}.items():
        value = values.get(name, "random")
        if value == "random":
            feeds[name] = _random(port, shapes.get(name, defaults.get(name)), generator)
            continue
        try:
            feeds[name] = np.load(value, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise unreadable(value, error, ".npy", name) from error
        if not isinstance(feeds[name], np.ndarray):
            raise InputError(f"'{value}' holds more than one array", tensor=name, hint="it must be a .npy file")
        if name in shapes and feeds[name].shape != shapes[name]:
            raise InputError(
                f"'{value}' has shape {list(feeds[name].shape)}, --shape says otherwise",
                tensor=name,
                hint="leave --shape out",
            )
    return {**feeds, **arrays}


def _random(port: NodeArg, shape: tuple[int, ...] | None, generator: np.random.Generator) -> np.ndarray:
    from ..model.random_inputs import random_array

    if shape is None:
        if not all(isinstance(size, int) for size in port.shape):
            declared = "x".join(str(size if size is not None else "?") for size in port.shape)
            raise InputError(
                f"the model declares the shape {declared}",
                tensor=port.name,
                hint=f"give the sizes: --shape {port.name}=...",
            )
        shape = tuple(size for size in port.shape if isinstance(size, int))
    return random_array(port, shape, generator)
