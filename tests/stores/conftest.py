"""The servers that the tests of this folder run against: one of each, for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores.postgresql_server import PostgresqlServer, postgresql_server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A PostgreSQL."""
    with postgresql_server() as server:
        yield server


@pytest.fixture
def database(postgresql: PostgresqlServer) -> str:
    """The address of an empty database."""
    return postgresql.database()
