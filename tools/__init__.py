"""Tools of ``./dev`` that are no part of the package."""
