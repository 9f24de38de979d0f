"""One module a runtime, each run as a process of its own; see :mod:`bench.workers.protocol`."""
