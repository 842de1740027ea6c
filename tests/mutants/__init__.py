"""Bugs made by a tool, and which tests and simulated runs notice them: `nox -s mutants`.

`sites` walks a module and says where something can be changed, `operators` what stands there instead; `drawing` draws
mutants of a package by a seed; `covering` knows which tests and runs reach a line; `planting` puts a mutant into a
process; `server` tries it there; `judging` decides what is tried, and `report` says what came of it.
"""
