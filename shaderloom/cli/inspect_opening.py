"""The models and bundles that ``shaderloom inspect`` opens with its options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.plan.errors import DeviceError, InputError
from .options import InputOptions
from .session import make_feeds
from .terminal import echo

if TYPE_CHECKING:
    from ..inspect.inspected_plan import InspectedPlan
    from ..inspect.program_view import ProgramView
    from ..model.compiled import Progress
    from ..model.model import Model
    from ..runtime.plan.device_profile import DeviceProfile
    from ..session.session import InferenceSession


@dataclass
class Opening:
    """Opens models and bundles with the options of one command."""

    inputs: InputOptions
    device: str | None
    web: bool
    cache: bool
    progress: Progress
    wanted: list[str] | None = None  #: providers; None: wgpu, and the cpu for what that cannot run

    @cached_property
    def providers(self) -> list[str]:
        """The providers of the command; raise :class:`InputError` unless wgpu, which compiles, is the first."""
        from ..api.providers import parse_providers

        names = [name for name, _ in parse_providers(self.wanted or ["wgpu", "cpu"])]
        if names[0] != "wgpu":
            raise InputError("what runs on the cpu is not compiled", hint="write --providers wgpu, or wgpu,cpu")
        return names

    @property
    def has_cpu(self) -> bool:
        """Whether nodes that wgpu refuses run on the cpu, for which a session of this machine is opened."""
        return "cpu" in self.providers and not self.web

    @cached_property
    def profile(self) -> DeviceProfile:
        return choose_profile(self.device, self.web)

    def model(self, path: Path, options: dict[str, Any]) -> tuple[Model, dict[str, tuple[int, ...]]]:
        """Open a model and return it with its input shapes; raise :class:`InputError` for a bundle."""
        from ..inspect.inspected_plan import looks_like_bundle
        from ..model.feeds import complete_shapes

        if looks_like_bundle(path):
            raise InputError(f"'{path}' is a bundle: it holds plans and shaders, no graph", hint="inspect the model")
        opened = self._open(path, options)
        return opened, complete_shapes(opened.header, self.inputs.shapes, opened.dynamic)

    def _open(self, path: Path, options: dict[str, Any], *, keep_refused: bool = False) -> Model:
        from ..model.model import Model

        dynamic, report = self.inputs.dynamic, self.progress
        return Model(
            path, dynamic=dynamic, cache=self.cache, options=options, progress=report, keep_refused=keep_refused
        )

    def inspected(self, path: Path, options: dict[str, Any]) -> InspectedPlan:
        """Return the plan to inspect: that of the model or of the bundle.

        A program of several steps runs once; of its plans the one with the most calls is returned.
        """
        from ..execution.one_plan import OnePlanDecision
        from ..inspect.inspected_plan import inspect_bundle, inspect_model, looks_like_bundle
        from ..model.feeds import complete_shapes

        if looks_like_bundle(path):
            self._check_bundle_options(options)
            return inspect_bundle(path, self.inputs.shapes)
        opened = self._open(path, options, keep_refused=self.has_cpu)

        def of_one_plan(shapes: dict[str, tuple[int, ...]], _: None = None) -> InspectedPlan:
            return inspect_model(opened, complete_shapes(opened.header, shapes, opened.dynamic), self.profile)

        if self.web:  # several steps need a device of this machine
            return of_one_plan(self.inputs.shapes)
        inspected = OnePlanDecision(opened, has_steps=True).attempt(
            of_one_plan, self.inputs.shapes, has_cpu=self.has_cpu
        )
        return inspected or self.view(path, options).largest()

    def view(self, path: Path, options: dict[str, Any]) -> ProgramView:
        """Return where the nodes of a model run; a model of several plans runs once, on random inputs by default."""
        from ..inspect.inspected_plan import looks_like_bundle
        from ..inspect.program_view import view_of

        if looks_like_bundle(path):
            raise InputError(f"'{path}' is a bundle: it does not hold the model's nodes", hint="inspect the model")
        with self.session(path, options, self.inputs.dynamic) as session:
            return view_of(session, make_feeds(session, self.inputs), path.name)

    def session(self, path: Path, options: dict[str, Any], dynamic: Any) -> InferenceSession:
        """Open a session of a model whose sizes have the ranges ``dynamic``.

        Raises :class:`DeviceError` if the selected device is missing, and :class:`InputError` with ``--web``.
        """
        if self.web:
            raise InputError("stages are compiled for a device of this machine", hint="leave out --web")
        from ..runtime.device.opening import open_device
        from ..session.session import InferenceSession

        return InferenceSession(
            path,
            providers=self.providers,
            device=open_device(self.device),
            dynamic=dynamic,
            cache=self.cache,
            options=options,
        )

    def _check_bundle_options(self, options: dict[str, Any]) -> None:
        if options or self.inputs.dynamic != "auto":
            raise InputError("the plans of a bundle are compiled already", hint="leave out --option and --dynamic")
        if self.wanted is not None:
            raise InputError("--providers is for models: a bundle runs on wgpu", hint="leave it out")

    def write_html(self, target: Path, path: Path, options: dict[str, Any], measure: bool) -> None:
        """Write the report of a model or a bundle, with measurements if ``measure``."""
        from ..inspect.inspected_plan import inspect_bundle, looks_like_bundle
        from .inspect_html import write_report

        if not measure:
            write_report(target, self.inspected(path, options))
        elif looks_like_bundle(path):
            from ..bundles.session import load_bundle

            self._check_bundle_options(options)
            with load_bundle(path, device=self.device) as session:
                inspected = inspect_bundle(path, self.inputs.shapes, session.device.profile.kind)
                self._measure(target, inspected, session)
        else:
            if self.web:
                raise InputError("times are measured on a device of this machine", hint="leave out --web or --profile")
            inspected = self.inspected(path, options)
            with self.session(path, options, self.inputs.dynamic) as session:
                self._measure(target, inspected, session)

    def _measure(self, target: Path, inspected: InspectedPlan, session: InferenceSession) -> None:
        from .inspect_html import write_report

        write_report(target, inspected, session, make_feeds(session, self.inputs))

    def describe(self, path: Path, options: dict[str, Any]) -> dict[str, Any]:
        """Return the description of a model's or a bundle's plan, or the one stored in a JSON file."""
        from ..inspect.inspected_plan import read_description

        if path.suffix == ".json":
            return read_description(path)
        return self.inspected(path, options).describe()


def choose_profile(device: str | None, web: bool) -> DeviceProfile:
    """Choose the profile to compile for; without an adapter WebGPU's default limits, which every device satisfies."""
    from ..runtime.plan.device_profile import WEB

    if web:
        return WEB
    from ..runtime.device.opening import open_device

    try:
        return open_device(device).profile
    except DeviceError as error:
        if device is not None:
            raise
        echo(f"note: {error.reason}; compiling for WebGPU's default limits", err=True)
        return WEB
