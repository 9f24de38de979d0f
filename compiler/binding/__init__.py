"""Bind input shapes to an imported model: sizes become numbers or polynomials of declared dimensions."""
