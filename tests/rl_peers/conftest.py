"""Fixtures for the field's libraries: installed by `nox -s rl-peers` alone, and with warnings about each other."""

from __future__ import annotations

import os

import pytest

VARIABLE = "TRIO_COGMENT_RL_PEERS"


@pytest.fixture(autouse=True)
def _installed() -> None:
    """Skip what was selected elsewhere; in the session itself a package that is missing is a failure."""
    if VARIABLE not in os.environ:
        pytest.skip("needs an environment of its own: nox -s rl-peers")
