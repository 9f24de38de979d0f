"""Inference sessions, and the chain of execution providers behind each."""
