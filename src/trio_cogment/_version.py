"""The version of this package, also reported by `Version` calls."""

__version__ = "0.3.0"
