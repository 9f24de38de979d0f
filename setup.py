"""The package list. Everything else about the distribution is in pyproject.toml.

The parts of Shaderloom are top-level folders of the repository and subpackages of ``shaderloom`` when installed.
setuptools' declarative package discovery cannot express this, and a hand-written list would miss new subpackages.
"""

from setuptools import find_packages, setup

FOLDERS = {
    "shaderloom": "shaderloom",
    "shaderloom.compiler": "compiler",
    "shaderloom.runtime": "runtime",
    "shaderloom.templates": "templates",
}

setup(
    package_dir=FOLDERS,
    packages=[
        name
        for root, folder in FOLDERS.items()
        for name in (root, *(f"{root}.{subpackage}" for subpackage in find_packages(folder)))
    ],
)
