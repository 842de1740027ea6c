"""Checkers: what must hold in every run, judged by the history of the run."""
