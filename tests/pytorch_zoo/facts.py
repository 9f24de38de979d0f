"""The device and the libraries of the zoo's environment, as JSON: ``python -m tests.pytorch_zoo.facts``."""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import version

import torch

import shaderloom

LIBRARIES = ("torch", "torchvision", "timm", "transformers")

if __name__ == "__main__":
    device = shaderloom.open_device(None)
    software = "lavapipe" if "llvmpipe" in device.name else device.name.split("(")[0]
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else software
    facts = {
        "file": re.sub(r"\W+", "-", name.lower()).strip("-"),
        "device": name,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "libraries": ", ".join(f"{library} {version(library)}" for library in LIBRARIES),
    }
    print(json.dumps(facts))
