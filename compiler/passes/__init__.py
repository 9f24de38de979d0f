"""Passes from graph to graph, and the order in which they run."""
