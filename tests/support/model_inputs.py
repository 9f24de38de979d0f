"""What trained models are fed: speech, source text, sentences, molecules; prepared as by the packages' own code."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from examples.ocr.fetch import ModelUnavailableError, PackagedModel, fetch_model

MAGIKA_CONFIG = PackagedModel(
    "magika==1.0.3",
    "magika/models/standard_v3_3/config.min.json",
    "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
)
RAWI_VOCABULARY = PackagedModel(
    "text2tashkeel==0.1.0",
    "text2tashkeel/models/rawi_v2.vocab.json",
    "5a8972bc1c5985092973d543d8b04f4c9317b2d11625c242420baf69bb4bf037",
)

#: Letters and spaces without vowel signs: what rawi adds signs to
ARABIC = (
    "كان في قديم الزمان ملك يحب العلم والعلماء وكان له ثلاثة اولاد كلهم يقرأ ويكتب "
    "ذهب الولد الى المدرسة صباحا وعاد الى البيت مساء وهو يحمل كتابا جديدا عن تاريخ البلاد "
    "السماء صافية والبحر هادئ والناس يمشون على الشاطئ قبل غروب الشمس"
)


def packaged_json(file: PackagedModel) -> dict:
    """A JSON file of a package; skips the calling test if it is not available."""
    try:
        return json.loads(fetch_model(file).read_text(encoding="utf-8"))
    except ModelUnavailableError as error:
        pytest.skip(str(error))


def speech(samples: int, seed: int = 0, rate: int = 16000) -> np.ndarray:
    """A buzz of 120 Hz through two resonances, in syllables with silence in between: float32 [samples]."""
    generator = np.random.default_rng(seed)
    time = np.arange(samples) / rate
    pitch = 120 + 15 * np.sin(2 * np.pi * 0.7 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voiced = np.zeros(samples)
    for harmonic in range(1, 30):
        frequency = harmonic * 120
        formants = sum(np.exp(-(((frequency - centre) / 250) ** 2)) for centre in (600, 1100, 2400))
        voiced += (0.05 + formants) / harmonic * np.sin(harmonic * phase)
    syllables = np.clip(np.sin(2 * np.pi * 3 * time), 0, 1) * (np.sin(2 * np.pi * 0.4 * time) > -0.2)
    signal = 0.2 * voiced * syllables + 0.002 * generator.standard_normal(samples)
    return signal.astype(np.float32)


def file_bytes(content: bytes) -> np.ndarray:
    """The first and the last 1,024 bytes of a file, stripped and padded with 256: magika's input, int32 [1, 2048]."""
    begin = content[:4096].lstrip()[:1024]
    end = content[-4096:].rstrip()[-1024:]
    features = np.full((1, 2048), 256, np.int32)
    features[0, : len(begin)] = np.frombuffer(begin, np.uint8)
    features[0, 2048 - len(end) :] = np.frombuffer(end, np.uint8)
    return features


def files_of_repository(count: int) -> list[Path]:
    """Text files of several kinds: source, templates, documents, configuration."""
    root = Path(__file__).resolve().parents[2]
    found = [path for folder in ("docs", "templates", "compiler", "examples") for path in (root / folder).rglob("*")]
    files = [root / "pyproject.toml", root / "README.md", root / "dev", *sorted(p for p in found if p.is_file())]
    return [files[number * len(files) // count] for number in range(count)]


def arabic_ids(begin: int, length: int) -> np.ndarray:
    """Ids of ``length`` characters of the text from ``begin`` on, which starts over at its end: int64 [1, length]."""
    ids = packaged_json(RAWI_VOCABULARY)["char_to_idx"]
    whole = unicodedata.normalize("NFD", ARABIC + " ")
    whole = "".join(character for character in whole if unicodedata.category(character) != "Mn")
    text = whole * (1 + (begin + length) // len(whole))
    return np.array([[ids[character] for character in text[begin : begin + length]]], np.int64)


def protein(atoms: int, edges: int, residues: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Numbers of the ranges that caustic's features have."""
    generator = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape).astype(np.float32)

    def integers(high: int, *shape: int) -> np.ndarray:
        return generator.integers(0, high, shape, dtype=np.int64)

    return {
        "element": integers(3, atoms),
        "amino_acid": integers(20, atoms),
        "atom_role": integers(3, atoms),
        "bfactor": normal(atoms),
        "edge_index": integers(atoms, 2, edges),
        "edge_dist": np.abs(normal(edges)) * 3,
        "seq_sep": integers(3, edges),
        "same_residue": integers(2, edges).astype(np.float32),
        "target_indices": integers(atoms, residues, 6),
        "target_mask": integers(2, residues, 6).astype(bool),
        "residue_types": integers(20, residues),
        "residue_geometry": normal(residues, 52),
        "target_environment": normal(residues, 6, 15),
        "temperature_feature": normal(residues, 1),
        "target_atom_rsasa": normal(residues, 6),
        "pos": normal(atoms, 3) * 5,
        "node_normal": normal(atoms, 3),
        "is_hbond": integers(2, edges).astype(np.float32),
        "hb_cos": normal(edges),
    }
