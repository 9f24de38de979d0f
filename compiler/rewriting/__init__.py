"""Construction and rewriting of graphs: the typed builder and declarative rules."""
