"""The runtimes that benchmarks compare, the drivers that they run on, and environments for those that are not ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BUILD = Path("build") / "bench"


@dataclass(frozen=True)
class Driver:
    """A Vulkan driver; ``manifests`` are where its loader manifest may be (none: what the system chooses).

    One with ``programs`` is the WebGPU of a browser, and there if one of these programs is.
    """

    name: str
    title: str
    manifests: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    @property
    def manifest(self) -> Path | None:
        """The manifest that is there."""
        return next((path for place in self.manifests for path in sorted(Path("/").glob(place.lstrip("/")))), None)

    @property
    def is_present(self) -> bool:
        if self.programs:
            return any(map(shutil.which, self.programs))
        return not self.manifests or self.manifest is not None

    def environment(self) -> dict[str, str]:
        """Variables that let a Vulkan loader see this driver alone."""
        manifest = self.manifest
        return {} if manifest is None else dict.fromkeys(("VK_DRIVER_FILES", "VK_ICD_FILENAMES"), str(manifest))


DRIVERS = {
    driver.name: driver
    for driver in (
        Driver("lavapipe", "lavapipe, the software driver of Mesa", ("/usr/share/vulkan/icd.d/lvp_icd*.json",)),
        Driver("swiftshader", "SwiftShader", ("/usr/lib/chromium/vk_swiftshader_icd.json",)),
        Driver("chromium", "Chromium's WebGPU on SwiftShader", programs=("chromium", "chromium-browser")),
        Driver("system", "the system's first GPU"),
    )
}


@dataclass(frozen=True)
class Runtime:
    """A runtime as a module of ``bench.workers``.

    ``packages`` are what a peer's own environment needs, ``node_packages`` what npm installs for one that runs in a
    page; without either it runs in ours.  ``drivers`` are those that it accepts;
    none: it runs on the CPU and is measured beside every driver.  A peer with ``converts`` reads a file made by
    ``convert`` of its worker.
    """

    name: str
    title: str
    worker: str
    drivers: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    node_packages: tuple[str, ...] = ()
    converts: bool = False

    @property
    def is_peer(self) -> bool:
        return bool(self.packages or self.node_packages)

    @property
    def folder(self) -> Path:
        """Where a peer is installed."""
        return BUILD / "peers" / self.worker

    def python(self) -> Path:
        """The interpreter of the environment that has the runtime."""
        if not self.packages:
            return Path(sys.executable)
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def is_installed(self) -> bool:
        stamp = self.folder / "installed"
        return not self.is_peer or (stamp.is_file() and stamp.read_text() == self._wanted)

    @property
    def _wanted(self) -> str:
        return "\n".join((*self.packages, *self.node_packages))

    def install(self) -> None:
        """Install a peer, once.

        Raises :class:`subprocess.CalledProcessError` with what the installer said, and OSError if there is no npm.
        """
        if self.is_installed:
            return
        if self.node_packages:
            commands = [
                ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(self.folder), *self.node_packages]
            ]
        else:
            pip = [str(self.python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            commands = [[sys.executable, "-m", "venv", "--clear", str(self.folder)], [*pip, *self.packages]]
        for command in commands:
            subprocess.run(command, check=True, capture_output=True, text=True)
        (self.folder / "installed").write_text(self._wanted)


#: onnxruntime on the CPU comes first: its outputs are the reference for the error of the others
RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("onnxruntime-cpu", "onnxruntime CPU, 2 threads", "onnxruntime_cpu"),
        Runtime("shaderloom", "Shaderloom", "shaderloom_session", ("lavapipe", "swiftshader", "system")),
        Runtime(
            "onnxruntime-webgpu",
            "onnxruntime WebGPU",
            "onnxruntime_webgpu",
            ("swiftshader",),
            ("onnxruntime-webgpu==1.27.0", "numpy"),
        ),
        Runtime(
            "ncnn",
            "ncnn Vulkan",
            "ncnn_vulkan",
            ("lavapipe", "swiftshader", "system"),
            ("ncnn==1.0.20261020", "pnnx==20261020", "numpy"),
            converts=True,
        ),
        Runtime(
            "wonnx",
            "wonnx",
            "wonnx_session",
            ("lavapipe", "system"),
            ("wonnx==0.5.1", "onnx", "onnxsim", "numpy"),
            converts=True,
        ),
        Runtime("shaderloom-web", "Shaderloom's bundle", "shaderloom_web", ("chromium",)),
        Runtime(
            "onnxruntime-web",
            "onnxruntime-web WebGPU",
            "onnxruntime_web",
            ("chromium",),
            node_packages=("onnxruntime-web@1.30.0",),
        ),
    )
}

#: The runtimes that the others are compared with; a driver has one of them
OURS = ("shaderloom", "shaderloom-web")
