"""Kernel families: each turns a fused group into a :class:`~.spec.KernelSpec`."""
