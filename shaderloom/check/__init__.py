"""Compare what a model computes with a reference, and find the cause of a difference."""
