"""The JSON of bundles, and changes of it: what hostile manifests and plans are made of."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaderloom.runtime.bundle.format import DIGEST, MANIFEST, model_file, plan_file
from shaderloom.runtime.bundle.integrity import digest_line
from shaderloom.runtime.bundle.program_relations import steps_of

from .bundles import file_record

Change = Callable[[Any], None]

#: What stands in for a value of any type
WRONG: tuple[Any, ...] = (
    None, True, -1, 1.5, 2**53, 10**400, "", "x", "\ud800", "__proto__", [], {}, [None], [[]], {"__proto__": 1},
    ["+"], ["+", 1, [2, 3]], ["//", 4, 0], ["%", 4, -1], ["min", 1], ["moon", 1, 2], ["*", *[2] * 2000], ["+", "q", 1],
)  # fmt: skip


@dataclass(frozen=True)
class Seed:
    """The JSON of a bundle's manifest and of one of its plans.

    Those of a further model have its name, and the manifest of the bundle as ``own``.
    """

    manifest: Any
    plan: Any
    own: Any = None
    model: str = ""

    @classmethod
    def of(cls, folder: Path, model: str = "") -> Seed:
        own = json.loads((folder / MANIFEST).read_bytes())
        manifest = json.loads((folder / model_file(model)).read_bytes()) if model else own
        plans = [plan["key"] for plan in manifest["plans"]]
        for program in manifest.get("programs", ()):
            plans += [step["plan"] for step in steps_of(program["steps"]) if step["kind"] == "stage"]
        plan = json.loads((folder / plan_file(plans[0])).read_bytes())
        return cls(manifest, plan, own, model) if model else cls(manifest, plan)

    @property
    def key(self) -> str:
        return self.plan["key"]

    def changed(self, file: str, change: Change) -> Seed:
        made = copy.deepcopy(self)
        change(getattr(made, file))
        return made

    def files(self) -> tuple[bytes, bytes]:
        return json.dumps(self.manifest).encode(), json.dumps(self.plan).encode()

    def sealed(self, bundle: Mapping[str, bytes], manifest: bytes, plan: bytes) -> dict[str, bytes]:
        """Return the files of the seed's bundle with another manifest or plan, and the digests that they need."""
        own_manifest, own_plan = self.files()
        files, name = dict(bundle), plan_file(self.key)
        if plan != own_plan:
            files[name] = plan
            manifest = _listing(manifest, name, plan)
        if self.model and manifest != own_manifest:
            further, own = model_file(self.model), json.dumps(self.own).encode()
            files[further] = manifest
            manifest = _listing(_listing(own, name, files[name]), further, manifest)
        if manifest != own_manifest:
            files |= {MANIFEST: manifest, DIGEST: digest_line(manifest)}
        return files


def _listing(manifest: bytes, name: str, content: bytes) -> bytes:
    """Return the manifest with the size and the hashes of a file, unless what it is has no place for them."""
    root = _parsed(manifest)
    if not isinstance(root, dict) or not isinstance(root.get("files"), dict):
        return manifest
    root["files"][name] = file_record(content)
    return json.dumps(root).encode()


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def put(value: Any, *path: Any) -> Change:
    """Replace what is at a path."""

    def change(root: Any) -> None:
        for name in path[:-1]:
            root = root[name]
        root[path[-1]] = value

    return change


def drop(*path: Any) -> Change:
    def change(root: Any) -> None:
        for name in path[:-1]:
            root = root[name]
        del root[path[-1]]

    return change


def twice(*path: Any) -> Change:
    """Repeat the first item of a list."""

    def change(root: Any) -> None:
        for name in path:
            root = root[name]
        root.append(copy.deepcopy(root[0]))

    return change


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value, of lists and of objects with keys for names that of the first item."""
    if path:
        yield path
    if isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))
    elif isinstance(value, dict):
        named = path and path[-1] in ("files", "weights", "shapes", "dynamic", "producer", "limits", "alternatives")
        for name in sorted(value)[: 1 if named else None]:
            yield from places(value[name], (*path, name))


def structural(seed: Seed) -> Iterator[tuple[str, str, Change]]:
    """Yield a name, the file and the change for every field and every wrong value, and for every field without it."""
    for file in ("manifest", "plan"):
        for path in places(getattr(seed, file)):
            text = ".".join(map(str, path))
            yield f"{file}.{text} missing", file, drop(*path)
            for number, value in enumerate(WRONG):
                yield f"{file}.{text} = wrong {number}", file, put(value, *path)
