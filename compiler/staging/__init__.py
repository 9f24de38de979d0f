"""Compile a model as far as the values at hand allow, and say what the rest waits for."""
