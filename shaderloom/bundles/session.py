"""Sessions of shader bundles: plans and weights come from the bundle, everything else works as for a model.

Nothing here imports the compiler, onnx, jinja2 or networkx.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..api.values import InputValue
from ..execution.plan_bound import DEFAULT_PLANS
from ..model.compiled import Progress
from ..model.feeds import ShapeKey
from ..runtime.bundle.files import is_bundle
from ..runtime.bundle.manifest import Manifest
from ..runtime.bundle.reader import Bundle
from ..runtime.bundle.signing import Key
from ..runtime.device.device import Device
from ..runtime.device.opening import open_device
from ..runtime.execution.ports import Feed
from ..runtime.plan.caps import Caps
from ..runtime.plan.errors import DeviceError, InputError, LimitError, UnsupportedError
from ..session.session import InferenceSession
from .plans import BundlePlans, shape_key_of
from .program_run import BundleProgram


def load_bundle(path: str | os.PathLike[str], **options: Any) -> BundleSession:
    """Open a shader bundle, a folder or a zip, as a session.

    ``options`` are ``device``, ``caps``, ``plans``, ``use_native``, ``preferred_output_location`` and ``progress`` of
    :class:`InferenceSession`.  The session has its methods, and ``shape_keys`` lists the shapes that the bundle was
    compiled for; other shapes are an :class:`InputError`.  Shaders of a bundle keep their bounds checks unless
    ``trust=True``: say so only of a bundle that you made, or whose maker may run code on this machine.
    ``verify_key``, a PEM file or its bytes, is the public key of the one with which the bundle must be signed.
    ``model`` names a further model of the bundle that is meant in place of its own.

    Raises :class:`BundleError` for a bundle that is damaged or not signed so, :class:`DeviceError` or
    :class:`LimitError` if the device lacks what the bundle needs.
    """
    return BundleSession(path, **options)


def open_session(model: Any, **options: Any) -> InferenceSession:
    """Open a bundle by its path, or else a model, with options of its session.

    Raises :class:`InputError` for options that a bundle does not have.
    """
    if not isinstance(model, (str, os.PathLike)) or not is_bundle(Path(model)):
        return InferenceSession(model, **options)
    wrong = sorted(options.keys() - (BundleSession.__init__.__kwdefaults__ or {}).keys())
    if wrong:
        hint = "it runs on devices, as it was compiled: leave the option out"
        raise InputError(f"a bundle has no option '{wrong[0]}'", hint=hint)
    return load_bundle(model, **options)


class BundleSession(InferenceSession):
    """Runs a bundle, with the run, report and close behaviour of :class:`InferenceSession`.

    A run with shapes that the bundle was not compiled for raises :class:`InputError`, which lists the available shapes.
    Shaders keep their bounds checks unless ``trust`` says that they come from a trusted source.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: str | int | Device | Any = None,
        caps: Caps | None = None,
        plans: int = DEFAULT_PLANS,
        use_native: bool | None = None,
        preferred_output_location: str | Mapping[str, str] | None = None,
        progress: Progress | None = None,
        trust: bool = False,
        verify_key: Key | None = None,
        model: str | None = None,
    ) -> None:
        self.bundle = Bundle(path, verify_key, model=model)
        try:
            opened = open_device(device)
            check_device(self.bundle.manifest, opened)
            source = BundlePlans(self.bundle, caps or Caps(), progress, trust=trust)
            self._open(
                source,
                opened,
                plans=plans,
                checked=None if trust else True,
                use_native=use_native,
                preferred_output_location=preferred_output_location,
                open_program=partial(BundleProgram, source) if self.bundle.manifest.programs else None,
            )
        except BaseException:
            self.bundle.close()
            raise

    def calibrate(self, input_feed: Mapping[str, InputValue]) -> None:
        """Raise :class:`InputError`: what a bundle stores as halves was decided where it was compiled."""
        raise InputError("a bundle is calibrated where it is compiled", hint="compile it again with --f16 and --input")

    def _feeds(self, input_feed: Mapping[str, InputValue]) -> dict[str, Feed]:
        try:
            return super()._feeds(input_feed)
        except UnsupportedError as error:
            error.hint = "leave it out: the bundle has no plan that takes it"
            raise

    @property
    def shape_keys(self) -> list[ShapeKey]:
        """The shapes that the bundle was compiled for."""
        manifest = self.bundle.manifest
        return [shape_key_of(manifest, shapes) for shapes in manifest.shapes]


def check_device(manifest: Manifest, device: Device) -> None:
    """Raise an error that names the feature or limit that the bundle needs and the device lacks."""
    profile = device.profile
    missing = sorted(set(manifest.features) - profile.features)
    if missing:
        raise DeviceError(f"the bundle needs the features {', '.join(missing)}, which {device.name} lacks")
    for name, needed in manifest.limits.items():
        present = profile.limits.get(name)
        if present is None:
            raise LimitError(f"the bundle needs '{name}', which is no known limit")
        if present > needed if name.startswith("min-") else present < needed:
            bound = "at most" if name.startswith("min-") else "at least"
            raise LimitError(f"the bundle needs {name} of {bound} {needed:,}; {device.name} has {present:,}")
