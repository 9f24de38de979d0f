"""Converts a model for a peer, in the peer's environment: arguments are the worker's name and a job."""

from __future__ import annotations

import importlib
import json
import sys

import numpy as np

from bench.workers.protocol import Job

if __name__ == "__main__":
    job = Job(**json.loads(sys.argv[2]))
    with np.load(job.inputs) as archive:
        importlib.import_module(f"bench.workers.{sys.argv[1]}").convert(
            job, {key: archive[key] for key in archive.files}
        )
