"""What Python and JavaScript refuse of a bundle: by which rule, and where; of a shader for what it has too much of."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaderloom.runtime.bundle.manifest_relations import check_further, check_manifest
from shaderloom.runtime.bundle.plan_relations import check_plan
from shaderloom.runtime.bundle.structure import Refusal, read
from shaderloom.runtime.device.wgsl_guard import MAX_INLINED, MAX_SCALARS, check, without_comments
from shaderloom.runtime.device.wgsl_values import TooLargeError, check_values
from shaderloom.runtime.plan.errors import LimitError

SCRIPT = Path(__file__).resolve().parents[1] / "web" / "verdicts.mjs"


@dataclass(frozen=True)
class Verdict:
    """``rule`` is None where all is well; ``path`` begins with the file."""

    rule: str | None
    path: tuple[str | int, ...] = ()


def python_verdict(manifest: bytes, plan: bytes | None, key: str, own: Any = None) -> Verdict:
    """The verdict of the Python reader; an error of any other kind is one of the test.

    ``own`` is the bundle's manifest where ``manifest`` is that of a further model.
    """
    file = "manifest"
    try:
        content = read(manifest, "manifest")
        check_manifest(content)
        if own is not None:
            check_further(content, own)
        if plan is not None:
            file = "plan"
            check_plan(read(plan, "plan"), content, key)
    except Refusal as refusal:
        return Verdict(refusal.rule, (file, *refusal.path))
    return Verdict(None)


def python_excess(wgsl: str) -> str:
    """Return by what a shader is beyond the bounds of the Python guard, "" if it is within them.

    Texts that are plain get the closer look of the others, too, as in JavaScript.
    """
    try:
        check(wgsl, len(wgsl), "it")
        check_values(without_comments(wgsl), MAX_SCALARS, MAX_INLINED)
    except (LimitError, TooLargeError) as error:
        return str(getattr(error, "reason", error)).removeprefix("the shader of it ").replace(",", "")
    return ""


class JavaScript:
    """The JavaScript reader and its guard in a process of Node.js."""

    def __init__(self) -> None:
        program = shutil.which("node")
        assert program is not None
        #: Of processor time that the longest answer took
        self.longest_milliseconds = 0.0
        self._process = subprocess.Popen(
            [program, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    @staticmethod
    def is_available() -> bool:
        return shutil.which("node") is not None

    def verdict(self, manifest: bytes, plan: bytes | None, key: str, own: Any = None) -> Verdict:
        """Return what :func:`python_verdict` does, of the JavaScript reader."""
        question: dict[str, Any] = {
            "manifest": base64.b64encode(manifest).decode(),
            "plan": None,
            "key": key,
            "own": own,
        }
        if plan is not None:
            question["plan"] = base64.b64encode(plan).decode()
        answer = self._ask(question)
        return Verdict(answer["rule"], tuple(answer["path"]))

    def excess(self, wgsl: str) -> str:
        """Return what :func:`python_excess` does, of the JavaScript guard."""
        return self._ask({"wgsl": wgsl})["excess"]

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self.longest_milliseconds = max(self.longest_milliseconds, answer["milliseconds"])
        return answer

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
