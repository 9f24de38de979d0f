"""Coverage-guided fuzzing of the readers of bundles with atheris, where it is installed.

    python -m tests.fuzz.bundle_readers plan --seconds 300

``plan`` and ``manifest`` are the targets: JSON that begins as one of ``tests/data/bundles`` and grows by what reaches
new lines.  A finding is an error that is no refusal, or another verdict than the JavaScript reader's; its file is kept
in ``build/fuzz/<target>``, as is the corpus, and is tried first the next time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT / "tests" / "data" / "bundles"
TARGETS = ("manifest", "plan")


def seeds(folder: Path, target: str) -> None:
    """Write the target's part of every kept bundle into the corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in SEEDS.glob("*.json"):
        content = json.dumps(json.loads(path.read_bytes())[target], separators=(",", ":"))
        (folder / f"seed-{path.stem}").write_text(content)


def words(path: Path) -> None:
    """Write what the JSON consists of as libFuzzer's dictionary."""
    from shaderloom.runtime.bundle.structure import schema

    names = {name for form in schema()["types"].values() if isinstance(form, dict) for name in form.get("record", {})}
    texts = [f'\\"{name}\\":' for name in sorted(names)]
    texts += [f'\\"{text}\\"' for text in ("__proto__", "n", "x", "output:same", "+", "*", "//", "%", "min", "max")]
    path.write_text("".join(f'"{text}"\n' for text in (*texts, "null", "[]", "{}", "9007199254740992", "1e999", "-1")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=300)
    arguments = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed (pip install atheris): skipped", file=sys.stderr)
        return 0
    import atheris

    with atheris.instrument_imports(include=["shaderloom.runtime"]):
        from shaderloom.runtime.bundle.plan import decode

        from ..support.verdicts import JavaScript, python_verdict
    other: Any = JavaScript() if JavaScript.is_available() else None
    bundle = json.loads((SEEDS / "dynamic.json").read_bytes())
    manifest, key = json.dumps(bundle["manifest"]).encode(), bundle["plan"]["key"]

    def attempt(data: bytes) -> None:
        question = (data, None, key) if arguments.target == "manifest" else (manifest, data, key)
        verdict = python_verdict(*question)
        if verdict.rule is None and arguments.target == "plan":
            decode(json.loads(data), lambda kernel: "", {})
        if other is not None:
            answer = other.verdict(*question)
            is_json = "json" in (verdict.rule, answer.rule)
            if answer != verdict and not (is_json and None not in (verdict.rule, answer.rule)):
                raise AssertionError(f"Python says {verdict}, JavaScript {answer}")

    folder = ROOT / "build" / "fuzz" / arguments.target
    seeds(folder / "corpus", arguments.target)
    words(folder / "dictionary")
    for finding in folder.glob("crash-*"):  # of an earlier run
        shutil.copy(finding, folder / "corpus")
    options = [f"-max_total_time={arguments.seconds}", f"-dict={folder / 'dictionary'}", "-max_len=32768"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}/", str(folder / "corpus")], attempt)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
