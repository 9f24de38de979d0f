"""Kernel families that walk rows: reductions, scans, and the row programs of normalisations."""
