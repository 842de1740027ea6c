"""The base: errors, settings, names and helpers that every other room may use.

Nothing here knows a server, a socket of gRPC or a trial. `errors` is one tree of exceptions with one table from
exception to gRPC status; `config` is every limit and timeout; `host` is what comes from outside (clock, ids, files,
processes), so that a simulation can give a program another outside. A module belongs here if at least two rooms that do
not import each other need it, and it needs none of them.
"""
