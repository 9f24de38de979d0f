"""Describe, compare, instrument and time one plan."""
