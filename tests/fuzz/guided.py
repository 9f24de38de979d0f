"""Coverage-guided fuzzing of what reads bundles, shaders, models and folders with atheris, where it is installed.

    python -m tests.fuzz.guided plan --seconds 300

``plan`` and ``manifest`` begin as one of ``tests/data/bundles`` or of a small bundle of each kind, ``bundle`` as a zip
of each, ``model`` as one of ``tests/data/fuzz``, and ``shader`` as one of the compiler's, of those that the guard
refuses, or of ``tests/data/shaders``; ``gguf`` begins as a tiny decoder, and ``settings`` as the files of folders; each
grows by what reaches new lines.  A finding is an error that is no refusal,
for manifests, plans and shaders another verdict than JavaScript's, and a model or a shader that takes too long; its
file is kept in ``build/fuzz/<target>``, as is the corpus, and is tried first the next time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..support.processor_time import at_most, watch

ROOT = Path(__file__).resolve().parents[2]
BUNDLES = ROOT / "tests" / "data" / "bundles"
MODELS = ROOT / "tests" / "data" / "fuzz"

#: Seconds of processor time that a guard may take for a shader, with the lines counted
SHADER_SECONDS = 5

Attempt = Callable[[bytes], None]


@dataclass(frozen=True)
class Target:
    """What is fuzzed: the packages whose lines count, and functions that return seeds, words and the attempt.

    The attempt imports what it runs, which is instrumented then, and raises for a finding.
    """

    packages: tuple[str, ...]
    seeds: Callable[[Path], dict[str, bytes]]
    words: Callable[[], list[str]]
    attempt: Callable[[Path], Attempt]
    longest: int = 1 << 16
    memory: int = 4096  #: MiB that the process may take; what a model leaves behind in caches is part of it


# -- manifests and plans ----------------------------------------------------------------------------------------------


def _json_target(part: str) -> Target:
    """Return the target of the manifest or the plan of a bundle."""

    def seeds(folder: Path) -> dict[str, bytes]:
        return {name: _compact(bundle[part]) for name, bundle in _json_seeds(folder).items()}

    return Target(("shaderloom.runtime",), seeds, _json_words, lambda folder: _both_readers(part, folder))


def _json_seeds(folder: Path) -> dict[str, dict[str, Any]]:
    """Return manifest and plan of a small bundle of each kind, of further models, and of what is kept, findings too."""
    from ..support.bundles import bundles_of_all_kinds
    from ..support.hostile import Seed

    fresh = folder / "bundles"
    paths = {path.name: path for path in fresh.iterdir()} if fresh.exists() else bundles_of_all_kinds(fresh)
    compiled = {name: asdict(Seed.of(path)) for name, path in paths.items()}
    further = {f"further-{name}": asdict(Seed.of(paths["further"], name)) for name in ("cache", "steps")}
    return {
        **compiled,
        **further,
        **{f"kept-{path.stem}": json.loads(path.read_bytes()) for path in BUNDLES.glob("*.json")},
    }


def _compact(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _json_words() -> list[str]:
    """Return what the JSON consists of."""
    from shaderloom.runtime.bundle.structure import fields_of, schema

    names = {name for kind, form in schema()["types"].items() if isinstance(form, list) for name in fields_of(kind)}
    texts = ("__proto__", "n", "x", "output:same", "+", "*", "//", "%", "min", "max")
    quoted = [f'"{name}":' for name in sorted(names)] + [f'"{text}"' for text in texts]
    return [*quoted, "null", "[]", "{}", "9007199254740992", "1e999", "-1"]


def _both_readers(part: str, folder: Path) -> Attempt:
    from shaderloom.runtime.bundle.manifest import Manifest
    from shaderloom.runtime.bundle.plan import decode

    from ..support.verdicts import JavaScript, python_verdict

    other: Any = JavaScript() if JavaScript.is_available() else None
    manifests: dict[str, tuple[bytes, Any]] = {}

    def attempt(data: bytes) -> None:
        if not manifests:  # not before: what compiles them is not to be instrumented
            for seed in _json_seeds(folder).values():
                manifests[seed["plan"]["key"]] = _compact(seed["manifest"]), seed.get("own")
        key = next((key for key in manifests if key.encode() in data), min(manifests))
        manifest, own = manifests[key]
        question = (data, None, key, own) if part == "manifest" else (manifest, data, key, own)
        verdict = python_verdict(*question)
        if verdict.rule is None:
            manifest = Manifest.from_bytes(question[0])
            if part == "plan":
                decode(json.loads(data), lambda kernel: "", manifest.weights)
        if other is not None:
            answer = other.verdict(*question)
            is_json = "json" in (verdict.rule, answer.rule)
            if answer != verdict and not (is_json and None not in (verdict.rule, answer.rule)):
                raise AssertionError(f"Python says {verdict}, JavaScript {answer}")

    return attempt


# -- shaders ----------------------------------------------------------------------------------------------------------


def _shader_seeds(_: Path) -> dict[str, bytes]:
    from ..support.golden import FOLDER
    from ..support.hostile_shaders import EDGES, EXPANDING

    texts = [path.read_text(encoding="utf-8") for path in (FOLDER / "wgsl").glob("*.wgsl")]
    texts += [*EXPANDING.values(), *EDGES.values()]
    return {str(number): text.encode() for number, text in enumerate(texts)}


def _shader_words() -> list[str]:
    from ..support.hostile_shaders import WORDS

    return [word for word in WORDS if word.isascii()]


def _both_guards(_: Path) -> Attempt:
    from ..support.verdicts import JavaScript, python_excess

    other: Any = JavaScript() if JavaScript.is_available() else None
    watch()

    def attempt(data: bytes) -> None:
        try:
            text = data.decode()
        except UnicodeDecodeError:  # which the readers refuse
            return
        with at_most(SHADER_SECONDS):
            verdict = python_excess(text)
        if other is not None and (answer := other.excess(text)) != verdict:
            raise AssertionError(f"Python says {verdict!r}, JavaScript {answer!r}")

    return attempt


# -- zips -------------------------------------------------------------------------------------------------------------


def _bundle_seeds(folder: Path) -> dict[str, bytes]:
    from ..support.bundles import bundles_of_all_kinds

    (folder / "zips").mkdir()
    return {name: path.read_bytes() for name, path in bundles_of_all_kinds(folder / "zips", as_zip=True).items()}


def _bundle_words() -> list[str]:
    return ["PK\x03\x04", "PK\x01\x02", "PK\x05\x06", "manifest.json", "manifest.sha256"]


def _open_bundle(folder: Path) -> Attempt:
    from shaderloom.runtime.bundle.reader import Bundle
    from shaderloom.runtime.plan.errors import InternalError, ShaderloomError

    path = folder / "bundle.zip"

    def attempt(data: bytes) -> None:
        path.write_bytes(data)
        try:
            with Bundle(path) as bundle:
                for key in bundle.manifest.plan_keys:
                    bundle.plan(key)
                bundle.check_all()
        except InternalError:
            raise
        except ShaderloomError:
            return

    return attempt


# -- models -----------------------------------------------------------------------------------------------------------


def _model_seeds(_: Path) -> dict[str, bytes]:
    from .model_seeds import seeds

    return seeds()


def _model_words() -> list[str]:
    """Return the names of all operators and of their attributes."""
    from shaderloom.compiler.ops.registry import registry

    attributes = {field.name for definition in registry.all() for field in fields(definition.attributes)}
    return sorted({definition.name for definition in registry.all()} | attributes)


def _load_model(folder: Path) -> Attempt:
    from shaderloom.runtime.plan.errors import ShaderloomError

    from .model_seeds import DATA_FILE
    from .model_worker import compile_model, fault_of

    watch()
    shutil.copy(MODELS / DATA_FILE, folder)
    path = folder / "model.onnx"
    for content in _model_seeds(folder).values():  # imports what is imported on first use, which takes long
        path.write_bytes(content)
        with suppress(ShaderloomError):
            compile_model(path)

    def attempt(data: bytes) -> None:
        path.write_bytes(data)
        fault = fault_of(path)
        if fault is not None:
            raise AssertionError(f"{fault['error']} at {fault['at']}")

    return attempt


# -- folders of decoders ----------------------------------------------------------------------------------------------


def _gguf_seeds(folder: Path) -> dict[str, bytes]:
    from ..support.tiny_gguf import write_tiny_gguf

    return {
        family: write_tiny_gguf(folder / f"{family}.gguf", family).path.read_bytes() for family in ("llama", "qwen2")
    }


def _gguf_words() -> list[str]:
    from shaderloom.convert.gguf_file import TYPES

    return [
        *TYPES.values(),
        "GGUF",
        "general.alignment",
        "attention.key_length",
        "tokenizer.ggml.",
        "blk.0.",
        "\xff" * 8,
    ]


def _convert(folder: Path) -> Attempt:
    from shaderloom.convert.gguf_decoder import convert_gguf
    from shaderloom.runtime.plan.errors import ShaderloomError

    def attempt(data: bytes) -> None:
        (folder / "t.gguf").write_bytes(data)
        with suppress(ShaderloomError):
            convert_gguf(folder / "t.gguf", folder / "folder")
        shutil.rmtree(folder / "folder", ignore_errors=True)

    return attempt


#: What a folder has besides the settings, which name these files
_MODELS = ("model.onnx", "encoder_model.onnx", "decoder_model_merged.onnx")


def _settings_seeds(_: Path) -> dict[str, bytes]:
    from ..support.hostile_settings import FOLDERS

    return {str(number): _compact(files) for number, files in enumerate(FOLDERS)}


def _settings_words() -> list[str]:
    from ..support.hostile_settings import FOLDERS

    return sorted({f'"{key}":' for files in FOLDERS for settings in files.values() for key in settings})


def _read_folder(folder: Path) -> Attempt:
    from shaderloom.generate.folder import ModelFolder
    from shaderloom.runtime.plan.errors import ShaderloomError

    for name in _MODELS:
        (folder / name).touch()

    def attempt(data: bytes) -> None:
        try:
            files = json.loads(data)
        except (ValueError, RecursionError):
            return
        for name in ("genai_config.json", "config.json", "generation_config.json", "tokenizer_config.json"):
            (folder / name).unlink(missing_ok=True)
            if isinstance(files, dict) and name in files:
                (folder / name).write_text(json.dumps(files[name]))
        with suppress(ShaderloomError):
            read = ModelFolder.read(folder)
            if not all(path.is_relative_to(folder) for path in (read.model, read.encoder, read.later) if path):
                raise AssertionError("a file outside the folder is read")

    return attempt


TARGETS = {
    "gguf": Target(("shaderloom.convert",), _gguf_seeds, _gguf_words, _convert, longest=1 << 18),
    "settings": Target(("shaderloom.generate",), _settings_seeds, _settings_words, _read_folder),
    "manifest": _json_target("manifest"),
    "plan": _json_target("plan"),
    "shader": Target(
        ("shaderloom.runtime.device",), _shader_seeds, _shader_words, _both_guards, longest=1 << 17, memory=512
    ),
    "bundle": Target(("shaderloom.runtime",), _bundle_seeds, _bundle_words, _open_bundle, 1 << 18),
    "model": Target(("shaderloom.compiler", "shaderloom.model"), _model_seeds, _model_words, _load_model, longest=4096),
}


def prepare(target: Target, seeds: Mapping[str, bytes], folder: Path) -> None:
    """Write corpus and dictionary, with the findings of earlier runs."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for name, content in seeds.items():
        (corpus / f"seed-{name}").write_bytes(content)
    escaped = ("".join(f"\\x{byte:02x}" for byte in word.encode("latin-1")) for word in target.words())
    (folder / "dictionary").write_text("".join(f'"{word}"\n' for word in escaped))
    for finding in folder.glob("crash-*"):
        shutil.copy(finding, corpus)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=300)
    arguments = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed (pip install atheris): skipped", file=sys.stderr)
        return 0
    import atheris

    warnings.simplefilter("ignore")
    target, folder = TARGETS[arguments.target], ROOT / "build" / "fuzz" / arguments.target
    with tempfile.TemporaryDirectory() as name:
        with atheris.instrument_imports(include=list(target.packages)):
            attempt = target.attempt(Path(name))
        prepare(target, target.seeds(Path(name)), folder)
        options = [f"-max_total_time={arguments.seconds}", f"-dict={folder / 'dictionary'}"]
        options += [f"-max_len={target.longest}", f"-rss_limit_mb={target.memory}", f"-artifact_prefix={folder}/"]
        atheris.Setup([sys.argv[0], *options, str(folder / "corpus")], attempt)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
