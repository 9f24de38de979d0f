"""Cases of the standard's operators."""
