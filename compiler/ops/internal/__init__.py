"""Operators of the domain ``loom``, which no model file contains: the targets of expansions."""
