"""Liveness, in-place reuse, memory and weights: fused groups become a :class:`~.plan.Plan`."""
