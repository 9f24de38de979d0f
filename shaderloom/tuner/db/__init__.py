"""Measured configurations by device: the shipped ones and the user's own."""
