"""Kernel families that order elements or move them by index: rank, merge, permute, scatter."""
