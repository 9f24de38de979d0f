"""Arithmetic that several operators share: windows, positions, attention, number codes, Winograd."""
