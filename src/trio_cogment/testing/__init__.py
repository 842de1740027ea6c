"""Tools for testing what is built on this package: conformance kits, simulation, fake participants."""
