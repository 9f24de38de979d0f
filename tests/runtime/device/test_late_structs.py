"""wgpu-py's structs are the dataclasses that they are without this package.  Covers: runtime/device/late_structs."""

from __future__ import annotations

import json
import subprocess
import sys

_LOOK = """
import dataclasses, inspect, json, sys
plain = dataclasses.dataclass
if sys.argv[1] == "late":
    from shaderloom.runtime.device import native
import wgpu
assert dataclasses.dataclass is plain
structs = {name: item for name, item in vars(wgpu.structs).items() if isinstance(item, type) and item is not
           wgpu.structs.Struct and issubclass(item, wgpu.structs.Struct)}
is_late = [name for name, item in structs.items() if type(vars(item)["__init__"]).__name__ == "_Late"]

def look(name, first):
    item = structs[name]
    looks = {
        "make": lambda: dict(item(**{field: 1 for field in inspect.get_annotations(item)})),
        "fields": lambda: [[field.name, repr(field.type), field.kw_only, field.default is dataclasses.MISSING or
                            repr(field.default)]
                           for field in dataclasses.fields(item)],
        "doc": lambda: item.__doc__,
        "match": lambda: list(item.__match_args__),
        "signature": lambda: str(inspect.signature(item)),
        "params": lambda: repr(item.__dataclass_params__),
        "equal": lambda: [item(**{field: 1 for field in inspect.get_annotations(item)}) ==
                          item(**{field: value for field in inspect.get_annotations(item)}) for value in (1, 2)],
        "hash": lambda: repr(item.__hash__),
        "derived": lambda: [field.name for field in dataclasses.fields(plain(type("Derived", (item,), {})))],
    }
    order = list(looks)[first % len(looks):] + list(looks)[:first % len(looks)]
    answers = {each: looks[each]() for each in order}
    return [sorted(answers.items()), sorted(vars(item))]

def fault(make):
    try:
        make()
    except TypeError as error:
        return str(error)

faults = [fault(lambda: wgpu.BufferDescriptor(siz=1)), fault(lambda: wgpu.Extent3D(1))]
print(json.dumps([is_late, faults, [look(name, number) for number, name in enumerate(structs)]]))
"""


def look(how: str) -> list[object]:
    command = [sys.executable, "-c", _LOOK, how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: list[object] = json.loads(done.stdout)
    return answer


def test_late_structs_are_the_dataclasses_of_wgpu() -> None:
    late, *mine = look("late")
    plain, *others = look("plain")
    assert plain == []
    assert isinstance(late, list)
    assert len(late) > 50
    assert mine == others
