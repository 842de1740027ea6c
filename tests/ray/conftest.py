"""One cluster of Ray for all tests of the folder: a head, and nodes that tests add and lose; `nox -s ray` has Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.ray.cluster import Grid

VARIABLE = "TRIO_COGMENT_RAY"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of the folder, and let pass what Ray and Gymnasium say of each other."""
    for item in items:
        if "tests/ray/" in item.path.as_posix():
            item.add_marker(pytest.mark.rl_peers)
            for warning in ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning", "ResourceWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))
            # RLlib registers its environment again for each algorithm of a process.
            item.add_marker(pytest.mark.filterwarnings("ignore:.*Overriding environment rllib:UserWarning"))


@pytest.fixture(autouse=True)
def _installed() -> None:
    """Skip what was selected elsewhere; in the session itself a package that is missing is a failure."""
    if VARIABLE not in os.environ:
        pytest.skip("needs an environment of its own: nox -s ray")


@pytest.fixture(scope="session")
def grid() -> Iterator[Grid]:
    """The cluster."""
    with Grid.started() as grid:
        yield grid
