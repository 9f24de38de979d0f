"""The database of measured choices: a JSON file, by adapter, driver and problem.

The file is not trusted: its size, its depth, its numbers and the forms of its values are checked while it is read, and
a choice in it is used only where the compiler offers the same one (see :mod:`.config_choice`).

::

    {"format": "shaderloom-tuning", "version": 1, "devices": [
        {"adapters": ["llvmpipe (LLVM 15.0.6, 256 bits)"], "driver": "Mesa 22.3.6 (LLVM 15.0.6)", "method": "cpu",
         "problems": {"gemm batch=1 ...": {"choice": {"form": "RegisterTile", ...}, "ns": 812000,
                                           "analytic": {...}, "analytic_ns": 1013000, "compile_ns": 240000000}},
         "refused": {"gemm batch=1 ...": [{"choice": {...}, "why": "the driver ended the process"}]}}]}
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cache import FOLDER_VARIABLE
from ..compiler.tuning.config_choice import EncodedCandidate
from ..runtime.plan.errors import InputError, unwritable
from ..runtime.plan.json_reader import Reader
from ..runtime.plan.record import record

#: Environment variable with the user's database, or ``off`` for neither it nor the defaults
VARIABLE = "SHADERLOOM_TUNING"

FORMAT, VERSION = "shaderloom-tuning", 1

#: Bounds on what a file may hold
MOST_BYTES, MOST_PROBLEMS, MOST_DEVICES, LONGEST_TEXT, MOST_FIELDS = 32 << 20, 100_000, 1_000, 2_000, 64


@record
class TuningEntry:
    """The measurement of a problem; ``choice`` may equal the cost model's choice.  ``compile_ns`` is that of
    ``choice``.
    """

    choice: EncodedCandidate
    ns: float
    analytic: EncodedCandidate
    analytic_ns: float
    compile_ns: float = 0.0

    @property
    def gain(self) -> float:
        """Speed-up over the cost model's choice."""
        return self.analytic_ns / self.ns if self.ns else 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            "choice": dict(self.choice),
            "ns": round(self.ns),
            "analytic": dict(self.analytic),
            "analytic_ns": round(self.analytic_ns),
            "compile_ns": round(self.compile_ns),
        }


@record
class RefusedCandidate:
    """A candidate that must not be tried again, and why."""

    choice: EncodedCandidate
    why: str


@dataclass
class DeviceTable:
    """Results on one driver version of the ``adapters``, which are names of one kind of card.

    ``method`` is how times were measured: ``timestamps``, ``wall``, or ``cpu`` for processor time.
    """

    adapters: tuple[str, ...]
    driver: str
    method: str = ""
    problems: dict[str, TuningEntry] = field(default_factory=dict)
    refused: dict[str, list[RefusedCandidate]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "adapters": list(self.adapters),
            "driver": self.driver,
            "method": self.method,
            "problems": {key: entry.to_json() for key, entry in sorted(self.problems.items())},
            "refused": {
                key: [{"choice": dict(item.choice), "why": item.why} for item in items]
                for key, items in sorted(self.refused.items())
            },
        }


class Database:
    """Tables of devices, and their file.  Nothing here queries the devices of this machine."""

    def __init__(self, tables: Iterable[DeviceTable] = ()) -> None:
        self.tables = list(tables)

    def table(self, adapter: str, driver: str) -> DeviceTable:
        """Return the table of exactly this adapter and driver, a new one if there is none."""
        present = self.find(adapter, driver)
        if present is None:
            present = DeviceTable((adapter,), driver)
            self.tables.append(present)
        return present

    def find(self, adapter: str, driver: str) -> DeviceTable | None:
        return next((table for table in self.tables if adapter in table.adapters and table.driver == driver), None)

    def to_text(self) -> str:
        tables = sorted(self.tables, key=lambda table: (table.adapters, table.driver))
        content = {"format": FORMAT, "version": VERSION, "devices": [table.to_json() for table in tables]}
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Database:
        """Parse a database; raise :class:`ValueError` that says what is malformed."""
        try:
            content = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON: {error}") from None
        root = Reader(content, "")
        if root.get("format").text() != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        version = root.get("version").number()
        if version != VERSION:
            raise ValueError(f"it has version {version}; this program reads version {VERSION}")
        if len(root.get("devices").items()) > MOST_DEVICES:
            raise ValueError(f"it has more than {MOST_DEVICES} devices")
        tables = root.sequence("devices", _read_table)
        if sum(len(table.problems) + len(table.refused) for table in tables) > MOST_PROBLEMS:
            raise ValueError(f"it has more than {MOST_PROBLEMS:,} problems")
        return cls(tables)

    @classmethod
    def read(cls, path: Path) -> Database:
        """Read the database of a file, empty if the file does not exist.

        Raises :class:`InputError` for a file that is no database or cannot be read.
        """
        try:
            with open(path, "rb") as file:
                data = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror or error}", hint="name another file") from error
        try:
            if len(data) > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
            return cls.from_text(data.decode("utf-8"))
        except ValueError as error:
            raise InputError(
                f"'{path}' is not a database of tuned choices: {error}",
                hint=f"remove it, or name another with {VARIABLE}",
            ) from error

    def write(self, path: Path) -> None:
        """Replace the file atomically.  Raises :class:`InputError` if that fails."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(self.to_text())
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise unwritable(path, error) from error


def user_path() -> Path | None:
    """Return the path of the user's database, beside the plan cache; None if ``SHADERLOOM_TUNING=off`` disables it."""
    chosen = os.environ.get(VARIABLE)
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and folder != "off":
        return Path(folder) / "tuning.json"
    import platformdirs

    return Path(platformdirs.user_cache_dir("shaderloom", appauthor=False)) / "tuning.json"


# -- reading -----------------------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _text(item: Reader) -> str:
    text = item.text()
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"{item.location} is longer than {LONGEST_TEXT} characters")
    return text


def _time(item: Reader) -> float:
    if type(item.value) not in (int, float) or not 0 <= item.value < 1e18 or not math.isfinite(item.value):
        raise ValueError(f"{item.location} is not a time in nanoseconds")
    return float(item.value)


def _choice(item: Reader) -> dict[str, Any]:
    fields = item.object()
    if len(fields) > MOST_FIELDS:
        raise ValueError(f"{item.location} has more than {MOST_FIELDS} fields")
    for name, value in fields.items():
        if value is not None and type(value) not in (bool, int, float, str):
            raise ValueError(f"{item.location}.{name} is no plain value")
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise ValueError(f"{item.location}.{name} is longer than {LONGEST_TEXT} characters")
    return dict(fields)


def _read_entry(item: Reader) -> TuningEntry:
    if len(item.location) > 2 * LONGEST_TEXT:
        raise ValueError(f"a key of a problem is longer than {LONGEST_TEXT} characters")
    return TuningEntry(
        _choice(item.get("choice")),
        _time(item.get("ns")),
        _choice(item.get("analytic")),
        _time(item.get("analytic_ns")),
        _time(item.get("compile_ns")),
    )


def _read_refusals(item: Reader) -> list[RefusedCandidate]:
    return [RefusedCandidate(_choice(each.get("choice")), _text(each.get("why"))) for each in item.items()]


def _read_table(item: Reader) -> DeviceTable:
    return DeviceTable(
        item.sequence("adapters", _text),
        _text(item.get("driver")),
        _text(item.get("method")),
        item.mapping("problems", _read_entry),
        item.mapping("refused", _read_refusals),
    )
