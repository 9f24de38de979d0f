"""Print a :class:`~.spec.KernelSpec` as WGSL."""
