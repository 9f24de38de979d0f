"""The file of tuned choices: round trips, what is refused, and what a device gets from it.

Covers: shaderloom/measurements/defaults.
"""

from __future__ import annotations

import json

import pytest

from shaderloom.measurements import device_records
from shaderloom.measurements.database import VARIABLE, Database, DeviceTable, RefusedCandidate, TuningEntry, user_path
from shaderloom.measurements.device_records import DeviceRecords, card, driver_of, shipped
from shaderloom.runtime.plan.device_profile import WEB, DeviceProfile
from shaderloom.runtime.plan.errors import InputError
from shaderloom.runtime.plan.facts import SHIPPED, TUNED

ENTRY = TuningEntry({"form": "RegisterTile", "rows": 4}, 100.0, {"form": "RegisterTile", "rows": 8}, 150.0, 7.0)
NAME, DRIVER = "llvmpipe (LLVM 15.0.6, 256 bits)", "Mesa 22.3.6 (LLVM 15.0.6)"
LAVAPIPE = DeviceProfile(kind="cpu", driver=f"{NAME} {DRIVER}", adapter=NAME)


def database() -> Database:
    table = DeviceTable(
        (NAME,), DRIVER, "cpu", {"gemm m=1": ENTRY}, {"gemm m=2": [RefusedCandidate({"form": "x"}, "it broke")]}
    )
    return Database([table])


def content(**changes) -> dict:
    return {**json.loads(database().to_text()), **changes}


def changed(path: list, value) -> dict:
    result = content()
    inner = result
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return result


def test_what_is_written_is_read_back(tmp_path):
    file = tmp_path / "folder" / "tuning.json"
    database().write(file)
    again = Database.read(file)
    assert again.tables == database().tables
    assert again.to_text() == database().to_text()
    assert [path.name for path in file.parent.iterdir()] == ["tuning.json"], "no temporary file is left"


def test_a_missing_file_is_an_empty_database(tmp_path):
    assert Database.read(tmp_path / "none.json").tables == []


PROBLEM = ["devices", 0, "problems", "gemm m=1"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not an object"),
        ('{"format": "shaderloom-tuning", "version": 1, "devices": [NaN]}', "NaN"),
        (content(format="other"), "format"),
        (content(version=2), "version 2"),
        (content(version="1"), "not a number"),
        (content(devices={}), "not a list"),
        (content(devices=[{}]), "no 'adapters'"),
        (changed(["devices", 0, "adapters"], [3]), "not a string"),
        (changed(["devices", 0, "driver"], "x" * 5000), "longer than"),
        (changed(PROBLEM, 5), "not an object"),
        (changed([*PROBLEM, "ns"], -1), "not a time"),
        (changed([*PROBLEM, "ns"], True), "not a time"),
        (changed([*PROBLEM, "ns"], 10**400), "not a time"),
        (changed([*PROBLEM, "choice"], []), "not an object"),
        (changed([*PROBLEM, "choice"], {"rows": [1]}), "no plain value"),
        (changed([*PROBLEM, "choice"], {"rows": "x" * 5000}), "longer than"),
        (changed([*PROBLEM, "choice"], {str(number): number for number in range(100)}), "more than 64 fields"),
        (changed(["devices", 0, "problems"], {"k" * 10_000: ENTRY.to_json()}), "longer than"),
        (changed(["devices", 0, "refused", "gemm m=2"], [{"choice": {}}]), "no 'why'"),
    ],
)
def test_malformed_files_are_errors_that_say_what_is_wrong(tmp_path, text, reason):
    file = tmp_path / "tuning.json"
    file.write_text(text if isinstance(text, str) else json.dumps(text))
    with pytest.raises(InputError) as caught:
        Database.read(file)
    assert reason in str(caught.value) and "tuning.json" in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


def test_bytes_that_are_no_text_and_too_many_bytes_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "tuning.json"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError):
        Database.read(file)
    monkeypatch.setattr("shaderloom.measurements.database.MOST_BYTES", 10)
    database().write(file)
    with pytest.raises(InputError, match="more than 10 bytes"):
        Database.read(file)


def test_a_session_goes_on_without_a_malformed_database(tmp_path):
    file = tmp_path / "tuning.json"
    file.write_text("{")
    with pytest.warns(UserWarning, match="not a database"):
        records = DeviceRecords(file).for_device(LAVAPIPE)
    assert records and records == DeviceRecords(tmp_path / "absent.json").for_device(LAVAPIPE)


def shipped_table(adapter: str) -> DeviceTable:
    tables = [table for table in shipped().tables if card(adapter) in map(card, table.adapters)]
    return tables[0] if tables else DeviceTable((adapter,), "")


def test_the_users_measurements_come_first_and_other_drivers_get_the_shipped_ones(tmp_path, monkeypatch):
    other = TuningEntry({"rows": 2}, 1.0, {"rows": 3}, 2.0)
    mine = Database([DeviceTable((NAME,), DRIVER, "cpu", {"gemm m=1": ENTRY})])
    theirs = Database([DeviceTable((NAME,), "Mesa 20", "cpu", {"gemm m=1": other, "gemm m=3": other})])
    monkeypatch.setattr(device_records, "shipped", lambda: theirs)
    file = tmp_path / "tuning.json"
    mine.write(file)
    found = DeviceRecords(file).for_device(LAVAPIPE)
    assert [(key, value.source, value.candidate) for key, value in found.items()] == [
        ("gemm m=1", TUNED, ENTRY.choice),
        ("gemm m=3", SHIPPED, other.choice),
    ]
    newer = "llvmpipe (LLVM 17.0.1, 256 bits)"
    updated = DeviceProfile(kind="cpu", driver=f"{newer} Mesa 24", adapter=newer)
    assert {value.source for value in DeviceRecords(file).for_device(updated).values()} == {SHIPPED}
    wider = "llvmpipe (LLVM 15.0.6, 512 bits)"  # other vectors: another machine as far as tiles go
    assert DeviceRecords(file).for_device(DeviceProfile(kind="cpu", driver=wider, adapter=wider)) == {}
    assert DeviceRecords(file).for_device(WEB) == {}, "a profile of no adapter has no measurements"
    assert DeviceRecords(None).for_device(LAVAPIPE) == {}


def test_an_identity_is_a_name_and_a_driver():
    assert driver_of(LAVAPIPE) == DRIVER
    assert driver_of(DeviceProfile(driver="SwiftShader Device (Subzero)", adapter="SwiftShader Device (Subzero)")) == ""


def test_where_the_users_database_is(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, "off")
    assert user_path() is None
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine.json"))
    assert user_path() == tmp_path / "mine.json"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("SHADERLOOM_CACHE", str(tmp_path))
    assert user_path() == tmp_path / "tuning.json"
    monkeypatch.delenv("SHADERLOOM_CACHE")
    assert user_path().name == "tuning.json"


def test_the_shipped_measurements_gain_clearly():
    for table in shipped().tables:
        assert table.adapters and table.problems and not table.refused
        for key, entry in table.problems.items():
            assert entry.choice != entry.analytic and entry.gain >= 1.05, (table.adapters, key)
