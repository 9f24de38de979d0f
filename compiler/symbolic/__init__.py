"""Symbolic arithmetic: integer polynomials of sizes and coordinates, scalar expressions of elements."""
