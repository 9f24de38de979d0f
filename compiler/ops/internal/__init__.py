"""Operators of the domain ``loom`` that serve several others: no model file contains them, expansions build them."""
