"""Kernel families of matrix products and convolutions."""
