"""Fakes: participants, hooks, data logs, storages and a directory that do as a test tells them, right or wrong."""
