"""The autotuner: measures configurations that the compiler's cost models rank highest, and keeps what it finds.

``database.py`` is the file of results, ``known.py`` what of it a device gets; ``bed.py`` runs one kernel by itself,
``timer.py`` says how long it took, ``tasks.py`` finds the kernels of a model that have a choice, ``search.py`` measures
theirs and ``forms.py`` those of the graph; ``worker.py`` does all this in a process of its own, which ``parent.py``
starts, watches and starts again where a candidate ended it.
"""
