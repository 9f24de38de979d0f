"""What the two readers of bundles say about a manifest and a plan: by which rule they refuse it, and where."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaderloom.runtime.bundle.relations import check_manifest, check_plan
from shaderloom.runtime.bundle.structure import Refusal, read

SCRIPT = Path(__file__).resolve().parents[1] / "web" / "verdicts.mjs"


@dataclass(frozen=True)
class Verdict:
    """``rule`` is None where all is well; ``path`` begins with the file."""

    rule: str | None
    path: tuple[str | int, ...] = ()


def python_verdict(manifest: bytes, plan: bytes | None, key: str) -> Verdict:
    """The verdict of the Python reader; an error of any other kind is one of the test."""
    file = "manifest"
    try:
        content = read(manifest, "manifest")
        check_manifest(content)
        if plan is not None:
            file = "plan"
            check_plan(read(plan, "plan"), content, key)
    except Refusal as refusal:
        return Verdict(refusal.rule, (file, *refusal.path))
    return Verdict(None)


class JavaScript:
    """The JavaScript reader in a process of Node.js."""

    def __init__(self) -> None:
        program = shutil.which("node")
        assert program is not None
        self._process = subprocess.Popen(
            [program, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    @staticmethod
    def is_available() -> bool:
        return shutil.which("node") is not None

    def verdict(self, manifest: bytes, plan: bytes | None, key: str) -> Verdict:
        question: dict[str, Any] = {"manifest": base64.b64encode(manifest).decode(), "plan": None, "key": key}
        if plan is not None:
            question["plan"] = base64.b64encode(plan).decode()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Verdict(answer["rule"], tuple(answer["path"]))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> JavaScript:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
