"""Shader bundles in a real browser."""
