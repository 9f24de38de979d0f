"""Operators of the domain ``loom``, which no file has: what the others expand into."""
