"""Seats: who takes an agent's part in a trial, other than the program that drives the trial."""

# First of all: without NumPy it says which extra is missing.
import trio_cogment.spaces as _spaces  # noqa: F401  see above
