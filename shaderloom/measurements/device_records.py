"""Known measurements of a device: the user's for exactly this driver, else the shipped ones for this card."""

from __future__ import annotations

import functools
import importlib.resources
import re
from pathlib import Path

from ..compiler.tuning.config_choice import TuningRecord
from ..notices import notify
from ..runtime.plan.device_profile import DeviceProfile
from ..runtime.plan.errors import InputError
from ..runtime.plan.facts import SHIPPED, TUNED
from .database import Database, DeviceTable, user_path

#: Part of an adapter's name that says with which library the driver was built
_BUILT_WITH = re.compile(r"LLVM \d+(\.\d+)*")


def card(adapter: str) -> str:
    """Return an adapter's name without the parts that vary between versions of its driver."""
    return _BUILT_WITH.sub("LLVM", adapter)


def driver_of(profile: DeviceProfile) -> str:
    """Return the driver's version: an adapter's identity without its name."""
    return profile.driver.removeprefix(profile.adapter).strip()


@functools.cache
def shipped() -> Database:
    """Load the measurements that are part of the package."""
    tables: list[DeviceTable] = []
    folder = importlib.resources.files(__package__) / "defaults"
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".json"):
            tables += Database.from_text(file.read_text(encoding="utf-8")).tables
    return Database(tables)


class DeviceRecords:
    """Measurements for one process: the shipped ones and those of the file ``path`` (None: neither).

    The file is read once; an unusable file is reported once, and the shipped ones are used.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._user: Database | None = None

    @classmethod
    def of_user(cls) -> DeviceRecords:
        return cls(user_path())

    @property
    def user(self) -> Database:
        if self._user is None:
            try:
                self._user = Database() if self.path is None else Database.read(self.path)
            except InputError as error:
                notify(str(error), once=f"tuning {self.path}")
                self._user = Database()
        return self._user

    def reload(self) -> None:
        """Read the file again on next use."""
        self._user = None

    def for_device(self, profile: DeviceProfile) -> dict[str, TuningRecord]:
        """Return tuning records by key of problem.

        The user's records apply to one driver version only.  Another version of the same card's driver gets the shipped
        ones, which are of some version: better than none, and replaced by the first tuning.
        """
        if self.path is None or not profile.adapter:
            return {}
        records: dict[str, TuningRecord] = {}
        for table in shipped().tables:
            if card(profile.adapter) in map(card, table.adapters):
                records.update(_records(table, SHIPPED))
        mine = self.user.find(profile.adapter, driver_of(profile))
        if mine is not None:
            records.update(_records(mine, TUNED))
        return records


def _records(table: DeviceTable, source: str) -> dict[str, TuningRecord]:
    return {
        key: TuningRecord(entry.choice, source, entry.ns, entry.analytic_ns) for key, entry in table.problems.items()
    }
