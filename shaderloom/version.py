"""The version of this package, by semantic versioning."""

__version__ = "0.1.0"
