"""How graphs are built and rewritten: the typed builder and declarative rules."""
