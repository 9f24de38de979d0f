"""Everything that is measured on a machine with a real GPU: ``./dev bench-gpu``.

    bench/gpu.py [--part PART]... [--wheels FOLDER] [--loader FOLDER] [--models A,B] [--seconds S] [--profile]

It runs with the interpreter that has PyTorch and onnxruntime, needs no network, and installs nothing outside
``build/bench``: wheels are unpacked there, and so is a Vulkan loader from Debian packages where the system has none.
It has parts, each of which takes less than eight minutes (:data:`PARTS`).  Every runtime has a process of its own; they
take turns on the device.  A runtime that cannot run a model is recorded with its error.  Results are written to
``build/bench/gpu.json``, and kept for each card in ``bench/results``, where a part replaces what it measured before;
``docs/benchmarks/gpus.md`` is made of all of them.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "bench"
#: The name of a part, and the module whose ``measure(arguments, environment)`` returns its results and what is wrong
PARTS = {
    "models": "bench.gpu_models_part",
    "decoders": "bench.gpu_decoders_part",
    "tokens": "bench.gpu_tokens_part",
    "int8": "bench.gpu_int8_part",
    "halves": "bench.gpu_halves_part",
    "recurrent": "bench.gpu_recurrent_part",
    "many": "bench.gpu_many_part",
}
#: Parts for a machine with several GPUs
SEVERAL_GPUS = {"scaling": "bench.gpu_scaling_part"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench-gpu", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--part", action="append", choices=[*PARTS, *SEVERAL_GPUS], help="some parts (all of one GPU)")
    parser.add_argument("--wheels", type=Path, default=ROOT / ".whl", help="wheels that the interpreter lacks (.whl)")
    parser.add_argument("--loader", type=Path, default=ROOT / ".gl", help="Debian packages of a Vulkan loader (.gl)")
    parser.add_argument("--models", default="", help="some of a part's models, separated by commas")
    parser.add_argument("--workers", default="shaderloom,onnxruntime,torch", help="some of the runtimes")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each mode of each round")
    parser.add_argument("--profile", action="store_true", help="also the time of every call of Shaderloom")
    parser.add_argument("--no-kernels", action="store_true", help="leave the single kernels out")
    parser.add_argument("--no-starts", action="store_true", help="leave the starts of processes out")
    parser.add_argument("--json", type=Path, default=BUILD / "gpu.json")
    parser.add_argument("--no-page", action="store_true")
    arguments = parser.parse_args()
    environment = prepare(arguments.wheels, arguments.loader)
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    from bench import gpu_page

    results: dict[str, Any] = {}
    wrong: list[str] = []
    for part in arguments.part or PARTS:
        began = time.perf_counter()
        measured, faults = importlib.import_module({**PARTS, **SEVERAL_GPUS}[part]).measure(arguments, environment)
        facts = {"date": datetime.date.today().isoformat(), "machine": _machine()}
        results[part] = {**facts, **measured, "seconds": time.perf_counter() - began}
        wrong += faults
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(results, indent=1))
    if not arguments.no_page:
        gpu_page.keep(results, ROOT)
        gpu_page.write(ROOT)
    print(gpu_page.section(results))
    if wrong:
        raise SystemExit(f"outputs are wrong or missing: {', '.join(wrong)}")


def prepare(wheels: Path, loader: Path) -> dict[str, str]:
    """The environment of the workers: packages from wheels, Shaderloom from this tree, a Vulkan loader."""
    site = BUILD / "gpu-site"
    wheel_files = sorted(wheels.glob("*.whl")) if wheels.is_dir() else []
    stamp, wanted = site / "installed", "\n".join(str(wheel) for wheel in wheel_files)
    if not stamp.is_file() or stamp.read_text() != wanted:
        site.mkdir(parents=True, exist_ok=True)
        if wheel_files:
            install = ["install", "-q", "--no-index", "--no-deps", "--no-cache-dir", "--upgrade"]
            command = [sys.executable, "-m", "pip", *install, "--target", str(site), *map(str, wheel_files)]
            subprocess.run(command, check=True)
        stamp.write_text(wanted)
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # no user's process compiles all that it imports
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(site)])
    environment.setdefault("XDG_RUNTIME_DIR", "/tmp")
    libraries = BUILD / "gpu-loader"
    packages = sorted(loader.glob("*.deb")) if loader.is_dir() else []
    if packages and not _has_loader():
        for package in packages:
            subprocess.run(["dpkg", "-x", str(package), str(libraries)], check=True)
        folders = [str(path) for path in libraries.glob("usr/lib/*-linux-gnu")]
        present = [environment["LD_LIBRARY_PATH"]] if environment.get("LD_LIBRARY_PATH") else []
        environment["LD_LIBRARY_PATH"] = os.pathsep.join([*folders, *present])
    driver = Path("/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json")
    if driver.is_file():
        environment.setdefault("VK_DRIVER_FILES", str(driver))
    return environment


def _has_loader() -> bool:
    try:
        listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return False
    return "libvulkan.so.1" in listed


def _machine() -> str:
    """The card, its driver, and the processor."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm", "--format=csv,noheader"]
    try:
        cards = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
        card = cards[0] + (f"; {len(cards)} GPUs" if len(cards) > 1 else "")
    except (OSError, subprocess.CalledProcessError):
        card = "unknown card"
    return f"{card}; {os.cpu_count()} processor cores"


if __name__ == "__main__":
    main()
