"""The autotuner: measures the configurations that the compiler's cost models rank highest, and stores the results.

``kernel_benchmark.py`` runs one kernel in isolation, ``timer.py`` times it, ``tasks.py`` lists the kernels of a model
that have a choice, ``search.py`` measures their configurations and ``forms.py`` those of the graph; ``worker.py`` does
all this in a process of its own, which ``parent.py`` starts, watches and restarts after a candidate ended it.
"""
