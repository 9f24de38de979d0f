"""Sessions and inputs from command line arguments, for the commands that run a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.plan.errors import InputError
from .common import unreadable
from .options import ExecutionOptions, InputOptions

if TYPE_CHECKING:
    import numpy as np

    from ..model.compiled import Progress
    from ..session.session import InferenceSession


def keep_model(target: Path, model: Path) -> None:
    """Raise :class:`InputError` if a result would overwrite the model that it is computed from."""
    if target.exists() and model.exists() and target.samefile(model):
        raise InputError(f"'{target}' is the model itself", hint="name another file")


def open_session(model: Path, options: ExecutionOptions, progress: Progress) -> InferenceSession:
    """Open a session of the model or the bundle; raise :class:`InputError` for an option of the other kind."""
    from ..runtime.bundle.files import is_bundle

    if is_bundle(model):
        from ..bundles.session import load_bundle

        if options.dynamic != "auto":
            raise InputError("--dynamic is decided when a bundle is compiled", hint="leave it out")
        if options.providers is not None:
            raise InputError("--providers is for models: a bundle runs on wgpu", hint="leave it out")
        if options.check_indices:
            raise InputError(
                "--check-indices is for models: a bundle has no means to check indices", hint="leave it out"
            )
        for name in options.storage:
            option = "--f16" if name == "precision" else f"--{name}"
            raise InputError(f"{option} is decided when a bundle is compiled", hint="leave it out")
        return load_bundle(
            model, device=options.device, progress=progress, trust=options.trust, verify_key=options.verify_key
        )
    if options.verify_key is not None:
        raise InputError("--verify-key is for bundles: a model has no signature", hint="leave it out")
    if options.trust:
        raise InputError("--trust is for bundles: a model's shaders are generated here", hint="leave it out")
    from ..session.session import InferenceSession

    return InferenceSession(
        model,
        providers=parse_providers(options.providers),
        device=options.device,
        dynamic=options.dynamic,
        cache=options.cache,
        progress=progress,
        options={**options.storage, **({"check_indices": True} if options.check_indices else {})},
    )


def parse_providers(text: str | None) -> list[str] | None:
    """Return the names of ``--providers``; None leaves the choice to the session."""
    return None if text is None else [name.strip() for name in text.split(",")]


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

    from ..model.feeds import complete_shapes
    from ..model.random_inputs import random_array
    from ..runtime.plan.size_range import read_ranges

    arrays = arrays or {}
    values, shapes = inputs.values, {**inputs.shapes, **{name: array.shape for name, array in arrays.items()}}
    ports = {port.name: port for port in session.get_inputs()}
    optional = {port.name: port for port in session.get_overridable_initializers()}
    for name in (*values, *shapes):
        if name not in ports and name not in optional:
            raise InputError(f"the model has no input '{name}'", hint=f"its inputs are {', '.join(ports) or 'none'}")
    read = {name: _read_array(name, value, shapes.get(name)) for name, value in values.items() if value != "random"}
    shapes = {**session.default_shapes(), **shapes, **{name: array.shape for name, array in read.items()}}
    dynamic = {} if isinstance(inputs.dynamic, str) else read_ranges(inputs.dynamic)
    complete = complete_shapes(session._header, shapes, dynamic, of_run=True)
    generator = np.random.default_rng(inputs.seed)
    feeds = {}
    for name, port in {**ports, **{name: optional[name] for name in values if name in optional}}.items():
        shape = complete.get(name, tuple(size for size in port.shape if isinstance(size, int)))
        feeds[name] = read[name] if name in read else random_array(port, shape, generator)
    return {**feeds, **arrays}


def _read_array(name: str, path: str, shape: tuple[int, ...] | None) -> np.ndarray:
    """Return the array of a .npy file; raise :class:`InputError` unless it has ``shape``, where that is stated."""
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, name) from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"'{path}' holds more than one array", tensor=name, hint="it must be a .npy file")
    if shape is not None and array.shape != shape:
        raise InputError(
            f"'{path}' has shape {list(array.shape)}, --shape says otherwise", tensor=name, hint="leave --shape out"
        )
    return array
