"""The demo's model as a bundle, compiled once and kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from examples.chat.model import SMOLLM2, smollm2_folder
from shaderloom.cache import compiler_version, key_of
from shaderloom.generate.bundling import compile_generator

#: Tokens of a conversation
LENGTH = 2048


def build_bundle(folder: Path, progress: Callable[[str, int, int], None] = lambda what, done, total: None) -> Path:
    """The bundle in ``folder``, compiled if it is not there or was compiled from other sources.

    Raises the errors of ``smollm2_folder`` and of the compiler.
    """
    folder.mkdir(parents=True, exist_ok=True)
    bundle, stamp = folder / "chat.shaderbundle", folder / "chat.json"
    facts = {"model": SMOLLM2.sha256, "length": LENGTH, "compiler": compiler_version()}
    content = json.dumps({"key": key_of("web-chat", facts)})
    if bundle.is_dir() and stamp.is_file() and stamp.read_text(encoding="utf-8") == content:
        return bundle
    stamp.unlink(missing_ok=True)
    if bundle.exists():
        shutil.rmtree(bundle)
    compile_generator(smollm2_folder(), bundle, max_length=LENGTH, progress=progress)
    stamp.write_text(content, encoding="utf-8")
    return bundle
