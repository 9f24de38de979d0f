"""Kernel families: each turns a fused group into a :class:`~.spec.KernelSpec`.

Importing a module registers its families; :mod:`.family` imports the module of one when it is looked up.
"""
