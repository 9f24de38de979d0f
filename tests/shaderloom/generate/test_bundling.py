"""Bundles that generate text: the answers of the folder that they were compiled of, without the compiler.

Covers: shaderloom/generate/bundling, shaderloom/generate/model_source, runtime/plan/decoder_ports.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shaderloom import Generator
from shaderloom.bundles.plans import BundlePlans
from shaderloom.bundles.session import BundleSession
from shaderloom.generate.bundling import compile_generator
from shaderloom.runtime.bundle.reader import Bundle
from shaderloom.runtime.plan.errors import BundleError, InputError, ModelError, ShaderloomError, UnsupportedError

from ...support.bundles import change_manifest, copy_bundle, seal
from ...support.patience import PATIENCE
from ...support.tiny_gguf import END, TinyGguf
from .test_genai_decoders import written
from .test_generator import drawn, greedy, until_end
from .test_growing import drawn as growing_prompt
from .test_growing import reference as growing_reference
from .test_growing import write_optimum_folder

SAMPLED = {"max_new_tokens": 12, "temperature": 1.2, "top_k": 40, "top_p": 0.9, "seed": 3, "stream": False}


@pytest.fixture(scope="module")
def bundle(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "b"
    compile_generator(folder, path, max_length=520, target="web")
    return path


@pytest.fixture(scope="module")
def bundled(bundle: Path, device: Any) -> Any:
    with Generator(bundle, device=device) as opened:
        yield opened


@pytest.mark.parametrize("length", [20, *(pytest.param(length, marks=pytest.mark.slow) for length in (1, 300))])
def test_greedy_tokens_are_those_of_the_reference(bundled: Generator, tiny: TinyGguf, length: int):
    bundled.rewind()
    ids = drawn(length, length)
    assert greedy(bundled, ids, 6) == until_end(tiny.greedy(ids, 6))
    assert bundled.plans <= 3


@pytest.mark.slow
def test_draws_and_words_are_those_of_the_folder(bundled: Generator, generator: Generator):
    messages = [{"role": "user", "content": "the thing"}]
    assert bundled.encode(messages) == generator.encode(messages)
    ours, theirs = (each.generate(messages, **SAMPLED) for each in (bundled, generator))
    assert (ours.tokens, ours.text) == (theirs.tokens, theirs.text)


def test_a_length_of_one_capacity(folder: Path, tmp_path: Path, device: Any, tiny: TinyGguf):
    """The range of the caches' rows has one size, which no plan has a symbol for."""
    compile_generator(folder, tmp_path / "b", max_length=60, target="web-software")
    ids = drawn(21, 1)
    with Generator(tmp_path / "b", device=device) as generator:
        assert greedy(generator, ids, 4) == until_end(tiny.greedy(ids, 4))


def test_no_more_tokens_than_compiled_for(bundled: Generator, bundle: Path, device: Any):
    assert bundled.max_length == 520
    with pytest.raises(InputError, match="520"):
        Generator(bundle, device=device, max_length=521)
    with pytest.raises(UnsupportedError, match="one text"):
        bundled.generate_batch([[3], [4]])


def test_all_files_are_checked(bundle: Path):
    with Bundle(bundle) as opened:
        opened.check_all()
        assert opened.models == ["choice"]
        weights = set(opened.manifest.weights)
        assert json.loads(opened.asset("generation.json", 1 << 20))["ends"] == [END]
    with Bundle(bundle, model="choice") as choice:
        assert not weights & set(choice.manifest.weights)
        assert {port.name for port in choice.manifest.outputs} == {"token", "seen_next"}
    with pytest.raises(InputError, match="it has choice"):
        Bundle(bundle, model="voice")


def test_trust_is_that_of_all_models_of_a_bundle(
    bundle: Path, folder: Path, device: Any, tiny: TinyGguf, monkeypatch: pytest.MonkeyPatch
):
    """The decoder's, and the one's that chooses; whether a driver is spared the checks then is the device's matter."""
    opened: list[tuple[bool, bool]] = []
    begin = BundlePlans.__init__

    def recorded(self: BundlePlans, bundle: Bundle, *arguments: Any, trust: bool) -> None:
        opened.append(("seen" in {port.name for port in bundle.manifest.inputs}, trust))
        begin(self, bundle, *arguments, trust=trust)

    monkeypatch.setattr(BundlePlans, "__init__", recorded)
    for trust in (True, False):
        with Generator(bundle, device=device, trust=trust) as generator:
            ids = drawn(5)
            assert generator.generate(ids, max_new_tokens=2, stream=False).tokens == until_end(tiny.greedy(ids, 2))
            generator.generate(ids, max_new_tokens=2, temperature=1.0, stream=False)
    assert opened == [(False, True), (True, True), (False, False), (True, False)]
    with pytest.raises(InputError, match="trust is for bundles"):
        Generator(folder, device=device, trust=True)
    with pytest.raises(InputError, match="one decoder"):
        Generator(bundle, device=device, file="model.onnx")


def test_drafts_are_verified_by_bundles_that_were_compiled_for_them(
    bundled: Generator, generator: Generator, folder: Path, tmp_path: Path, device: Any
):
    ids, drafted = drawn(10, 4) * 2, {"prompt_lookup_num_tokens": 6, "repetition_penalty": 0.5}
    with pytest.raises(UnsupportedError, match=r"no plan that verifies drafts.*--drafts"):
        bundled.generate(ids, **drafted)
    compile_generator(folder, tmp_path / "b", max_length=200, drafts=True, target="web-software")
    generator.rewind()
    wanted = generator.generate(ids, max_new_tokens=24, repetition_penalty=0.5, stream=False).tokens
    with Bundle(tmp_path / "b") as opened:
        assert opened.models == ["choice", "draft-choice"]
    with Generator(tmp_path / "b", device=device) as verifying:
        for options in ({"repetition_penalty": 0.5}, drafted):
            verifying.rewind()
            answer = verifying.generate(ids, max_new_tokens=24, stream=False, **options)
            assert answer.tokens == wanted
        assert answer.statistics.accepted_tokens > 4


def test_batches_of_unequal_prompts(folder: Path, tmp_path: Path, device: Any, tiny: TinyGguf):
    """Three together, and one behind them: answers are those of single texts, greedy and drawn."""
    compile_generator(folder, tmp_path / "b", max_length=200, batch=3, target="web-software")
    prompts = [drawn(length, length) for length in (5, 21, 2, 11)]
    with Bundle(tmp_path / "b") as opened:
        opened.check_all()
        assert sorted(opened.models) == ["batch", "batch-choice", "choice"]
    with Generator(tmp_path / "b", device=device) as generator:
        answers = generator.generate_batch(prompts, max_new_tokens=5)
        assert [each.tokens for each in answers] == [until_end(tiny.greedy(ids, 5)) for ids in prompts]
        sampled = generator.generate_batch(prompts[:2], seed=[3, 4], max_new_tokens=5, temperature=1.2, top_k=40)
        for ids, seed, answer in zip(prompts, (3, 4), sampled):
            single = generator.generate(ids, seed=seed, max_new_tokens=5, temperature=1.2, top_k=40, stream=False)
            assert answer.tokens == single.tokens
        assert generator.generate_batch([]) == []
        with pytest.raises(UnsupportedError, match="join and leave"):
            generator.scheduler()
    for batch in (1, 65):
        with pytest.raises(InputError, match="2 to 64"):
            compile_generator(folder, tmp_path / "c", batch=batch)


@pytest.mark.slow
def test_batches_over_caches_that_grow(tmp_path: Path, device: Any):
    """Short prompts are padded on the left, as the bundle says that the model allows it."""
    compile_generator(write_optimum_folder(tmp_path / "optimum"), tmp_path / "b", max_length=200, batch=3)
    prompts = [growing_prompt(20), growing_prompt(147)[:9]]
    with Generator(tmp_path / "b", device=device) as generator:
        answers = generator.generate_batch(prompts, max_new_tokens=4)
        assert [each.tokens for each in answers] == [growing_reference(ids, 4) for ids in prompts]


def test_drafts_of_a_model_with_one_row_of_logits_are_no_part_of_a_bundle(tmp_path: Path):
    with pytest.raises(UnsupportedError, match="one row alone"):
        compile_generator(written(tmp_path, -1, True), tmp_path / "b", drafts=True)


@pytest.mark.slow
def test_a_zip_has_the_same_answers(folder: Path, tmp_path: Path, device: Any, tiny: TinyGguf):
    path = tmp_path / "b.zip"
    compile_generator(folder, path, as_zip=True)
    ids = drawn(20, 1)
    with Generator(path, device=device) as generator:
        assert greedy(generator, ids, 4) == until_end(tiny.greedy(ids, 4))


@pytest.mark.slow
def test_caches_that_grow(tmp_path: Path, device: Any):
    compile_generator(write_optimum_folder(tmp_path / "optimum"), tmp_path / "b", max_length=200)
    with Generator(tmp_path / "b", device=device) as generator:
        for ids in (growing_prompt(1), growing_prompt(20), growing_prompt(147), growing_prompt(147)[:30]):
            assert greedy(generator, ids, 5) == growing_reference(ids, 5)


@pytest.mark.slow
def test_a_bundle_takes_no_compiler(bundle: Path, device: Any, tiny: TinyGguf):
    program = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {{"onnx", "jinja2", "networkx", "google", "onnxruntime"}}:
            raise ImportError(name)
        if name.startswith(("shaderloom.compiler", "shaderloom.templates")):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import shaderloom
with shaderloom.Generator({str(bundle)!r}, device={device.name!r}) as generator:
    for temperature in (0.0, 1.0):
        print(*generator.generate({drawn(20, 1)}, max_new_tokens=4, temperature=temperature, stream=False).tokens)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert list(map(int, first.split())) == until_end(tiny.greedy(drawn(20, 1), 4))
    assert second


def changed(bundle: Path, target: Path, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of which a JSON file is another one, with the hashes that it has then."""
    file = copy_bundle(bundle, target) / name
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))
    seal(target)
    return target


def rename_caches(settings: dict[str, Any]) -> None:
    settings["past"] = ["p.%d.%d"]


def drop_context(settings: dict[str, Any]) -> None:
    del settings["context"]


def name_other_caches(settings: dict[str, Any]) -> None:
    settings["present"] = ["none.%d", "nothing.%d"]


def end_with_a_text(settings: dict[str, Any]) -> None:
    settings["ends"] = ["</s>"]


@pytest.mark.parametrize(
    "change",
    [drop_context, *(pytest.param(each, marks=pytest.mark.slow)
                     for each in (rename_caches, name_other_caches, end_with_a_text))],
)  # fmt: skip
def test_settings_are_not_trusted(bundle: Path, tmp_path: Path, device: Any, change: Callable[[dict[str, Any]], None]):
    with pytest.raises(ShaderloomError):
        Generator(changed(bundle, tmp_path / "b", "assets/generation.json", change), device=device)


def test_a_model_lists_no_files_of_its_own(bundle: Path, tmp_path: Path, device: Any):
    def add(manifest: dict[str, Any]) -> None:
        manifest["files"]["plan-extra.json"] = {"size": 0, "sha256": []}

    path = changed(bundle, tmp_path / "b", "models/choice.json", add)
    with Bundle(path) as opened, pytest.raises(BundleError, match="otherwise"):
        opened.check_all()
    with pytest.raises(BundleError, match="otherwise"):
        BundleSession(path, device=device, model="choice")


def test_a_bundle_of_a_bundle_and_one_without_settings(bundle: Path, tmp_path: Path, device: Any):
    with pytest.raises(InputError, match="already"):
        compile_generator(bundle, tmp_path / "b")

    path = copy_bundle(bundle, tmp_path / "c")
    (path / "assets" / "generation.json").unlink()
    files = json.loads((path / "manifest.json").read_text())["files"]
    del files["assets/generation.json"]
    change_manifest(path, files=files)
    with pytest.raises(ModelError, match="--generate"):
        Generator(path, device=device)
