"""Options of sessions and runs under onnxruntime's names.

The effect of each option is documented in ``docs/guide/onnxruntime-api.md``.  An option that is accepted without effect
warns once.
"""

from __future__ import annotations

import enum
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..notices import notify
from ..runtime.plan.dtypes import check_precision
from ..runtime.plan.errors import InputError, MissingEntryError, MissingFileError, ModelError, UnsupportedError
from .real_onnxruntime import real_onnxruntime

#: Seconds that ``tune=True`` may take for each new shape of the inputs
TUNING_SECONDS = 60.0


class _NamedLevel(enum.IntEnum):
    """Numbers with names, which are printed as onnxruntime prints them: ``ExecutionMode.ORT_PARALLEL``."""

    __str__ = enum.Enum.__str__
    __format__ = enum.Enum.__format__


class GraphOptimizationLevel(_NamedLevel):
    """Optimisation level.

    ``ORT_DISABLE_ALL`` turns fusion, layouts and memory sharing off; all other levels are full optimisation.
    """

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_NamedLevel):
    """Node execution order of onnxruntime as the cpu provider; a device runs one queue."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(_NamedLevel):
    """Order of nodes in onnxruntime; here it has no effect, as the compiler orders kernels."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


#: Passes that ``ORT_DISABLE_ALL`` disables
_OPTIMISING = ("fuse", "weight-layouts", "layout", "in-place")

#: Options that affect only onnxruntime as the cpu provider
_CPU_ONLY = (
    "intra_op_num_threads",
    "inter_op_num_threads",
    "execution_mode",
    "enable_cpu_mem_arena",
    "enable_mem_pattern",
)

#: Of :meth:`SessionOptions.onnxruntime_options`: paths of libraries of operators
CUSTOM_OPS = "custom_ops_libraries"

#: Options without effect on any provider
_WITHOUT_EFFECT = (
    "optimized_model_filepath",
    "enable_mem_reuse",
    "log_verbosity_level",
    "logid",
    "use_deterministic_compute",
    "use_per_session_threads",
    "execution_order",
)

_INSTEAD = {
    "optimized_model_filepath": "nothing is written; 'shaderloom inspect MODEL --show ...' shows the graph",
    "use_deterministic_compute": "results are always deterministic on one device",
}


#: What making a dataclass with slots, or deriving from one, adds to its names
_OF_ITS_MAKING = frozenset(
    {"__dataclass_fields__", "__dataclass_params__", "__match_args__", "__slots__", "__weakref__"}
)


class _Options:
    """What options of sessions and runs have in common: ``dir()`` is what they hold and do, as of onnxruntime's.

    Programs that pickle options do so in a derived class, with every attribute in ``dir()`` that is not callable.
    """

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self)} - _OF_ITS_MAKING)


@dataclass(slots=True, eq=False)
class SessionOptions(_Options):
    """Options of a session, under onnxruntime's names and with ``tune``, ``precision``, ``widen``, ``logits``,
    ``activations`` and ``check_indices`` besides.

    Setting an attribute that is no option raises :class:`AttributeError`, but in a class derived of this one; a value
    that an option cannot have :class:`InputError`.
    """

    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    log_severity_level: int = -1  #: as onnxruntime's default: warnings
    #: measure configurations of kernels for new shapes: True, or seconds; see docs/guide/tuning.md
    tune: bool | float = False
    #: "float32", or "float16": float32 tensors are stored as float16; see docs/guide/precision.md
    precision: str = "float32"
    #: "auto", or "off": whether what a model declares float16 is float32 where it is beyond; see the same page
    widen: str = "auto"
    #: "all", or "last": the logits of a decoder are one row, that of the last valid position; see docs/guide/logits.md
    logits: str = "all"
    #: "auto", "float" or "int8": how products with weights in blocks read activations; see docs/guide/precision.md
    activations: str = "auto"
    #: raise, as onnxruntime does, if an index is out of range on the device; see docs/guide/onnxruntime-api.md
    check_indices: bool = False
    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_profiling: bool = False  #: :meth:`InferenceSession.end_profiling` writes the trace
    profile_file_prefix: str = "onnxruntime_profile_"
    optimized_model_filepath: str = ""
    enable_mem_reuse: bool = True
    log_verbosity_level: int = 0
    logid: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    execution_order: Any = None
    _entries: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _dimensions: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _denotations: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _libraries: list[str] = field(default_factory=list, init=False, repr=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _NAMES and type(self) is SessionOptions:
            import difflib

            hint = difflib.get_close_matches(name, [option for option in _NAMES if not option.startswith("_")], 1)
            nearest = f"; the nearest is '{hint[0]}'" if hint else ""
            raise AttributeError(f"SessionOptions has no option '{name}'{nearest}")
        check = _CHECKED.get(name)
        object.__setattr__(self, name, value if check is None else check(value))

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix a named dimension of the inputs; the session then declares and enforces this size."""
        self._dimensions[str(name)] = _size(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix all dimensions of a denotation, such as ``DATA_BATCH``."""
        self._denotations[str(denotation)] = _size(size)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Store an entry, which has no effect beyond :meth:`get_session_config_entry`; a session says so once."""
        self._entries[str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """Return the value of an entry; raise :class:`InputError` if it was not added."""
        try:
            return str(self._entries[key])
        except KeyError:
            raise _no_entry("session", key, self._entries) from None

    def register_custom_ops_library(self, path: str | os.PathLike[str]) -> None:
        """Load a library of operators into onnxruntime, which runs their nodes as the provider cpu.

        Raises :class:`ModelError` if onnxruntime cannot load it, :class:`UnsupportedError` if that is not installed.
        Operators for the device are added by :func:`register_operator`.
        """
        if not os.path.isfile(path):
            raise MissingFileError(os.fspath(path))
        try:
            real_onnxruntime().C.SessionOptions().register_custom_ops_library(os.fspath(path))
        except ImportError as error:
            raise UnsupportedError(
                "a library of operators is for onnxruntime, which is not installed",
                hint="pip install 'shaderloom[cpu]'",
            ) from error
        except Exception as error:  # onnxruntime's own classes of errors
            raise ModelError(f"onnxruntime cannot load the library: {error}", hint="check the path") from error
        self._libraries.append(os.fspath(path))

    # Queries of the session

    def tuning_seconds(self) -> float:
        """Return the seconds that tuning may take for each new shape of the inputs; 0 without tuning."""
        return TUNING_SECONDS if self.tune is True else float(self.tune)

    def free_dimensions(self) -> Mapping[str, int]:
        """Return the sizes that :meth:`add_free_dimension_override_by_name` has set, by name."""
        return dict(self._dimensions)

    def free_denotations(self) -> Mapping[str, int]:
        """Return the sizes that :meth:`add_free_dimension_override_by_denotation` has set, by denotation."""
        return dict(self._denotations)

    def compiler_options(self, further: Mapping[str, Any], batch: str, providers: Sequence[str]) -> dict[str, Any]:
        """Return the options of the compiler for a session with these providers: its own, and ``further`` ones.

        ``batch`` is "declared", or a choice that the model checks.

        Raises :class:`InputError` for a batch that is opened beside the cpu provider.
        """
        options: dict[str, Any] = {}
        if int(self.graph_optimization_level) == GraphOptimizationLevel.ORT_DISABLE_ALL:
            options["disabled_passes"] = list(_OPTIMISING)
        if self.precision != "float32":
            options["precision"] = self.precision
        if self.widen != "auto":
            options["widen"] = self.widen
        if self.logits != "all":
            options["logits"] = self.logits
        if self.activations != "auto":
            options["activations"] = self.activations
        if self.check_indices:
            options["check_indices"] = True
        options.update(further)
        if batch != "declared":
            options["batch"] = batch
            if "cpu" in providers:
                raise InputError("a batch of 1 is opened for a device alone", hint="leave 'cpu' out of providers")
        if providers[0] == "cpu":  # which checks indices itself
            options.pop("check_indices", None)
        return options

    def onnxruntime_options(self) -> dict[str, Any]:
        """Return the options that onnxruntime obeys as the cpu provider and that differ from their defaults."""
        changed = {name: getattr(self, name) for name in _CPU_ONLY if getattr(self, name) != _DEFAULTS[name]}
        if int(self.graph_optimization_level) != GraphOptimizationLevel.ORT_ENABLE_ALL:
            changed["graph_optimization_level"] = int(self.graph_optimization_level)
        if self._libraries:
            changed[CUSTOM_OPS] = tuple(self._libraries)
        return changed

    def report_without_effect(self, providers: tuple[str, ...]) -> None:
        """Warn once about each option that was set and has no effect with these providers."""
        for name in (*_WITHOUT_EFFECT, *(() if "cpu" in providers else _CPU_ONLY)):
            if getattr(self, name) != _DEFAULTS[name]:
                instead = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
                notify(
                    f"the session option {name} has no effect{instead}",
                    once=f"option {name}",
                    severity=self.log_severity_level,
                )
        if self._libraries and "cpu" not in providers:
            notify(
                "a library of custom operators has no effect without the provider 'cpu'",
                once="custom operators",
                severity=self.log_severity_level,
            )
        for key in self._entries:
            notify(
                f"the session config entry '{key}' has no effect", once=f"entry {key}", severity=self.log_severity_level
            )


def _tuning(value: bool | float) -> bool | float:
    if isinstance(value, bool):
        return value
    if not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise InputError(f"tune is True, False or a number of seconds, not {value!r}")
    return value


def _one_of(name: str, *choices: str) -> Callable[[Any], str]:
    *others, last = map(repr, choices)

    def check(value: Any) -> str:
        if value not in choices:
            raise InputError(f"{name} is {', '.join(others)} or {last}, not {value!r}")
        return str(value)

    return check


def _level(value: Any) -> GraphOptimizationLevel:
    """Return a level of this package or of onnxruntime, or its number, as this package's."""
    try:
        return GraphOptimizationLevel(int(value))
    except (TypeError, ValueError):
        names = ", ".join(f"{each.name} ({each.value})" for each in GraphOptimizationLevel)
        raise InputError(f"there is no optimisation level {value!r}", hint=f"use one of {names}") from None


def _threads(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"a number of threads is an integer, not {value!r}", hint="0 leaves it to the cpu") from None


def _no_entry(options: str, key: str, entries: Iterable[str]) -> MissingEntryError:
    """Return the error for a configuration entry that was asked for and never added."""
    hint = f"the entries are {', '.join(entries)}" if entries else f"add_{options}_config_entry adds one"
    return MissingEntryError(f"the {options} options have no entry '{key}'", hint=hint)


#: Options whose values are checked when they are set
_CHECKED: dict[str, Callable[[Any], Any]] = {
    "activations": _one_of("activations", "auto", "float", "int8"),
    "check_indices": bool,
    "graph_optimization_level": _level,
    "inter_op_num_threads": _threads,
    "intra_op_num_threads": _threads,
    "logits": _one_of("logits", "all", "last"),
    "precision": check_precision,
    "tune": _tuning,
    "widen": _one_of("widen", "auto", "off"),
}

_NAMES = frozenset(item.name for item in fields(SessionOptions))
_DEFAULTS = {item.name: item.default for item in fields(SessionOptions)}


def _size(size: int) -> int:
    if int(size) < 0:
        raise InputError(f"a dimension cannot be {size}")
    return int(size)


@dataclass(slots=True, eq=False)
class RunOptions(_Options):
    """Options of one run.

    ``terminate`` set before a run refuses it; the others are accepted for programs that onnxruntime runs.
    """

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False
    _entries: dict[str, str] = field(default_factory=dict, repr=False)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Store an entry, which has no effect beyond :meth:`get_run_config_entry`; warn about that once."""
        self._entries[str(key)] = str(value)
        notify(f"the run config entry '{key}' has no effect", once=f"run entry {key}", severity=self.log_severity_level)

    def get_run_config_entry(self, key: str) -> str:
        """Return the value of an entry; raise :class:`InputError` if it was not added."""
        try:
            return self._entries[key]
        except KeyError:
            raise _no_entry("run", key, self._entries) from None
