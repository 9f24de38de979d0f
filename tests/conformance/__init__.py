"""Conformance: suites of cases that others wrote, run through the backend; ``./dev conformance`` writes the tables."""
