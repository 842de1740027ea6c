"""One file per parser, each with a `check(data)` for any bytes at all.

`nox -s fuzz` runs them under atheris; `tests/rpc/test_fuzz.py` replays the corpus, and mutations of it, in every run.
"""
