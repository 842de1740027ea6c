"""Conformance kits: the cases that an implementation of an interface has to pass."""
