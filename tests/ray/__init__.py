"""Runs over a Ray cluster, and Ray's libraries on trials; see `conftest`."""
