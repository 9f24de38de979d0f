"""detect-tumor: the class of a drawn scan."""

import inputs
import numpy as np
from detect_tumor import TumorDetector
from PIL import Image


def run():
    rows, columns = np.mgrid[-1:1:224j, -1:1:224j]
    scan = 110 * (rows**2 / 0.8 + columns**2 / 0.5 < 1) + 120 * ((rows - 0.3) ** 2 + (columns - 0.2) ** 2 < 0.02)
    picture = Image.fromarray(scan.astype(np.uint8)).convert("RGB")
    return TumorDetector().predict(inputs.png(np.asarray(picture))).model_dump(mode="json")
