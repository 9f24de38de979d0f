"""Everything that is measured on a machine with a real GPU, in one command: ``./dev bench-gpu``.

    bench/gpu.py [--wheels FOLDER] [--loader FOLDER] [--models A,B] [--seconds S] [--profile]

It runs with the interpreter that has PyTorch and onnxruntime, needs no network, and installs nothing outside
``build/bench``: wheels are unpacked there, and so is a Vulkan loader from Debian packages where the system has none.
Every runtime has a process of its own; they take turns on the device, model by model.  A runtime that cannot run
a model is recorded with its error.  Results are written to ``build/bench/gpu.json``, and kept for each card in
``bench/results``, of which ``docs/benchmarks/gpus.md`` is made.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.gpu_models import GpuModel

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "bench"
MARK = "@turn "
ROUNDS = 3
#: Runtimes whose starts are measured, and their workers; later runs of each process
STARTED = {"shaderloom": "shaderloom_session", "onnxruntime": "onnxruntime_plugin"}
RUNS = 30
PATIENCE = 60  #: seconds that a worker may take for one answer
#: Largest difference from onnxruntime's CPU provider, in relation to the largest output, that counts as correct
TOLERANCE = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench-gpu", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--wheels", type=Path, default=ROOT / ".whl", help="wheels that the interpreter lacks (.whl)")
    parser.add_argument("--loader", type=Path, default=ROOT / ".gl", help="Debian packages of a Vulkan loader (.gl)")
    parser.add_argument("--models", default="", help="some of them, separated by commas")
    parser.add_argument("--workers", default="gpu_shaderloom,gpu_onnxruntime,gpu_torch")
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

    began = time.perf_counter()
    results: dict[str, Any] = {"date": datetime.date.today().isoformat(), "machine": _machine(), "models": []}
    results["models"], results["runtimes"] = _measure_models(arguments, environment)
    if not arguments.no_kernels:
        results["kernels"] = _measure_kernels(environment)
    if not arguments.no_starts:
        results["starts"] = _measure_starts(arguments, environment)
    results["seconds"] = time.perf_counter() - began
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=1))
    if not arguments.no_page:
        gpu_page.keep(results, ROOT)
        gpu_page.write(ROOT)
    print(gpu_page.section(results))
    if any(not item["correct"] for item in results["models"]):
        raise SystemExit("some outputs are wrong or missing")


# -- setting up --------------------------------------------------------------------------------------------------------


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
        card = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        card = "unknown card"
    return f"{card}; {os.cpu_count()} processor cores"


# -- models ------------------------------------------------------------------------------------------------------------


class GpuWorker:
    """A runtime in its own process."""

    def __init__(self, name: str, environment: dict[str, str], *options: str) -> None:
        self.name = name
        self.log = (BUILD / f"{name}.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"bench.workers.{name}", *options],
            cwd=BUILD, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
        )  # fmt: skip
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.facts = self.answer()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            return {"error": f"the process has ended: {error}"}
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next message; a worker that does not answer in time is ended, and its later questions are errors."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                line = self.lines.get(timeout=max(end - time.monotonic(), 0.01))
            except queue.Empty:
                self.process.kill()
                return {"error": f"no answer in {PATIENCE} s"}
            if line is None:
                self.lines.put(None)
                return {"error": f"the process has ended with {self.process.wait()}: {self._last_words()}"}
            if line.startswith(MARK):
                return json.loads(line[len(MARK) :])

    def _last_words(self) -> str:
        lines = Path(self.log.name).read_text().strip().splitlines()
        return lines[-1][:300] if lines else "it wrote nothing"

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


def _measure_models(arguments: argparse.Namespace, environment: dict[str, str]) -> tuple[list[Any], dict[str, Any]]:
    import numpy as np

    from bench.gpu_models import fill

    chosen = _chosen(arguments)
    BUILD.mkdir(parents=True, exist_ok=True)
    options = ["--profile"] if arguments.profile else []
    names = arguments.workers.split(",")
    workers = [GpuWorker(name, environment, *(options if name == "gpu_shaderloom" else [])) for name in names]
    for worker in workers:
        print(worker.name, json.dumps(worker.facts), file=sys.stderr, flush=True)
        if worker.name == "gpu_shaderloom" and "error" in worker.facts:
            raise SystemExit(f"Shaderloom does not start; see {worker.log.name}")
    results = []
    try:
        for model in chosen:
            print(model.name, file=sys.stderr, flush=True)
            began = time.perf_counter()
            path = fill(model, BUILD / "gpu-models")
            np.savez(BUILD / "inputs.npz", **model.feeds())
            result: dict[str, Any] = {"model": model.name, "times": {}, "errors": {}, "differences": {}, "facts": {}}
            opened: dict[str, dict[str, Any]] = {}
            for worker in workers:
                answer = worker.ask(
                    do="open", model=str(path), torch=model.torch, inputs=str(BUILD / "inputs.npz"),
                    outputs=str(BUILD / f"{worker.name}.npz"), reference=str(BUILD / "reference.npz"),
                )  # fmt: skip
                opened[worker.name] = answer
                print(f"  {worker.name} {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
                if "error" in answer:
                    result["errors"][worker.name] = answer["error"]
                else:
                    result["facts"][worker.name] = {**answer["facts"], "first_s": answer["first_s"]}
            for _ in range(ROUNDS):
                for worker in workers:
                    for mode in opened[worker.name].get("modes", []):
                        timed = worker.ask(do="time", mode=mode, seconds=arguments.seconds, most=400)
                        if "ms" in timed:
                            result["times"].setdefault(f"{worker.name}/{mode}", []).extend(timed["ms"])
                        else:
                            result["errors"][f"{worker.name}/{mode}"] = timed["error"]
            for worker in workers:
                if opened[worker.name].get("compared") and (BUILD / "reference.npz").is_file():
                    result["differences"][worker.name] = _difference(
                        BUILD / f"{worker.name}.npz", BUILD / "reference.npz"
                    )
                worker.ask(do="close")
            result["correct"] = result["differences"].get("gpu_shaderloom", math.inf) <= TOLERANCE or (
                "gpu_onnxruntime" not in names or "gpu_shaderloom" not in names
            )
            result["summary"] = {
                key: {"median": statistics.median(times), "least": min(times), "most": max(times), "runs": len(times)}
                for key, times in result.pop("times").items()
            }
            _refuse_early_returns(result)
            results.append(result)
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            arguments.json.write_text(json.dumps({"models": results}))
            print(json.dumps({k: v for k, v in result.items() if k != "facts"}), file=sys.stderr, flush=True)
    finally:
        for worker in workers:
            worker.end()
    return results, {worker.name: worker.facts for worker in workers}


def _chosen(arguments: argparse.Namespace) -> list[GpuModel]:
    """Return the models that the command line names, or all."""
    from bench.gpu_models import GPU_MODELS

    return [GPU_MODELS[name] for name in arguments.models.split(",") if name] or list(GPU_MODELS.values())


def _measure_starts(arguments: argparse.Namespace, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return the starts of each model, of those that differ in a batch only the first."""
    import numpy as np

    from bench.gpu_models import fill
    from bench.starts import output_names, try_starts
    from bench.workers.protocol import Job

    results = []
    inputs, outputs = BUILD / "inputs.npz", BUILD / "start.npz"
    for model in {model.skeleton: model for model in reversed(_chosen(arguments))}.values():
        np.savez(inputs, **model.feeds())
        path = fill(model, BUILD / "gpu-models")
        job = json.dumps(asdict(Job(str(path), str(inputs), str(outputs), output_names(path), str(path))))
        starts = {
            runtime: try_starts([sys.executable, "-m", f"bench.workers.{worker}", job], environment, runs=RUNS)
            for runtime, worker in STARTED.items()
        }
        print(model.name, json.dumps(starts), file=sys.stderr, flush=True)
        results.append({"model": model.name, "starts": starts})
    return results[::-1]


def _refuse_early_returns(result: dict[str, Any]) -> None:
    """Times of runs that were not waited for are none: many runs to the last byte cannot take much longer a run."""
    settled = result["summary"].pop("gpu_shaderloom/settled", {}).get("median", 0.0)
    settled /= result["facts"].get("gpu_shaderloom", {}).get("settled_runs", 1)
    result["facts"].get("gpu_shaderloom", {})["settled_ms"] = settled
    summary = result["summary"].get("gpu_shaderloom/device")
    if summary and summary["median"] < 0.6 * settled:
        result["errors"]["gpu_shaderloom/device"] = (
            f"runs return before the device has finished: {summary['median']:.3f} ms each, {settled:.3f} ms to the end"
        )
        result["correct"] = False
        del result["summary"]["gpu_shaderloom/device"]


def _difference(ours: Path, theirs: Path) -> float:
    """Largest difference over the largest result, of the worst output; infinite for NaN and for missing outputs."""
    import numpy as np

    worst = 0.0
    with np.load(ours) as mine, np.load(theirs) as reference:
        if len(mine.files) != len(reference.files):
            return math.inf
        for name in mine.files:
            got, wanted = mine[name].astype(np.float64), reference[name].astype(np.float64)
            if got.shape != wanted.shape or not np.isfinite(got).all():
                return math.inf
            worst = max(worst, float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30)))
    return worst


def _measure_kernels(environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.gpu_kernels"]
    done = subprocess.run(command, cwd=BUILD, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip()[-1000:]}
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
