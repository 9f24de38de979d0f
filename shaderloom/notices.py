"""One-time warnings: options without effect, dropped providers, faster alternatives."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType

from .log import NOTICES
from .runtime.plan.errors import printable


class ShaderloomWarning(UserWarning):
    """What a user must know: options without effect, dropped providers, nodes that run elsewhere."""


class SoftwareAdapterWarning(ShaderloomWarning):
    """The device is a software driver that was not asked for."""


#: Shows the text of a notice of a category
Show = Callable[[str, type[ShaderloomWarning]], object]

_shown_once: set[str] = set()
_lock = threading.Lock()
_default_severity = 2
_show: Show | None = None

#: Severities above this one (as in onnxruntime: 2 is a warning, 3 an error) are silent
WARNING = 2


def set_default_severity(severity: int) -> None:
    """Set the severity of whatever sets none, for this process."""
    global _default_severity
    _default_severity = severity


def show_by(show: Show) -> None:
    """Pass the text of notices to ``show``, in place of warnings, of which a program may make errors."""
    global _show
    _show = show


def notify(
    message: str,
    *,
    once: str = "",
    severity: int = -1,
    category: type[ShaderloomWarning] = ShaderloomWarning,
) -> None:
    """Warn, unless ``once`` (a key) was warned about in this process or ``severity`` selects errors only.

    The warning is that of the line of the program that called into the package, or of the package in a thread without
    one.  Where :func:`show_by` was called, its function has the text, and no warning is issued.
    A negative severity stands for that of :func:`set_default_severity`.
    """
    if (_default_severity if severity < 0 else severity) > WARNING:
        return
    if once:
        with _lock:
            if once in _shown_once:
                return
            _shown_once.add(once)
    message = printable(message)  # it is printed by whatever shows warnings
    NOTICES.info("%s", message)
    if _show is not None:
        _show(message, category)
        return
    calls, caller = _calls_inside(sys._getframe(1))
    if caller is None or caller.f_globals.get("__name__") == threading.__name__:
        warnings.warn_explicit(message, category, __package__, 1)
    else:
        warnings.warn(message, category, stacklevel=calls + 2)


def _calls_inside(frame: FrameType | None) -> tuple[int, FrameType | None]:
    """Return how many calls, from ``frame`` on, are those of functions of the package, and what called the first."""
    calls = 0
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == __package__:
        frame, calls = frame.f_back, calls + 1
    return calls, frame


def forget() -> None:
    """Reset all one-time warnings; for tests."""
    with _lock:
        _shown_once.clear()
