"""Compile, open and verify shader bundles."""
