"""Addresses of databases, and the package that they need; the rest is in tests/stores, beside a real server."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest

from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    MissingExtraError,
    ResourceExhaustedError,
    UnavailableError,
)
from trio_cogment.base.postgresql import TransientError, check_address, database_errors, shown
from trio_cogment.cli.services.trial_datastore import StorageSettings
from trio_cogment.servers.datastore import open_store


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("postgresql://host/database", "postgresql://host/database"),
        ("postgresql://ann@host:5432/database?sslmode=require", "postgresql://ann@host:5432/database?sslmode=require"),
        ("postgresql://ann:s3cret@host/database", "postgresql://ann:***@host/database"),
        ("postgresql://:s3cret@host/database", "postgresql://:***@host/database"),
        ("postgresql://ann:s3:cret@[::1]:5432/database", "postgresql://ann:***@[::1]:5432/database"),
        ("postgresql://host/d?password=s3cret&user=ann", "postgresql://host/d?password=***&user=ann"),
        ("postgresql://host/d?user=ann&sslpassword=s3cret", "postgresql://host/d?user=ann&sslpassword=***"),
    ],
)
def test_no_password_is_shown(address: str, text: str) -> None:
    assert shown(address) == text
    assert StorageSettings(address=address, memory_bytes=1).place == text


@pytest.mark.parametrize("address", ["postgresql://a:s3cret@host/d?nonsense=1", "mysql://a:s3cret@host/d"])
def test_an_address_that_is_none_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="expected postgresql://") as caught:
        check_address(address)
    assert "s3cret" not in str(caught.value)


async def test_without_psycopg_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'trio-cogment\[postgresql\]'"):
        async with open_store("postgresql://host/database"):
            pass


def test_psycopg_is_imported_by_whom_it_serves() -> None:
    code = (
        "import sys, trio, trio_cogment.base.postgresql\n"
        "from trio_cogment.servers.datastore import open_store\n"
        "async def main():\n"
        "    async with open_store('memory:'): pass\n"
        "trio.run(main)\n"
        "assert 'psycopg' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("failure", "meaning"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), TransientError),
        (psycopg.errors.AdminShutdown("terminating connection"), TransientError),
        (psycopg.errors.DeadlockDetected("deadlock detected"), TransientError),
        (psycopg.errors.QueryCanceled("canceling statement"), TransientError),
        (psycopg.errors.DiskFull("could not extend file"), ResourceExhaustedError),
        (psycopg.errors.InvalidPassword("password authentication failed"), FailedPreconditionError),
        (psycopg.OperationalError('FATAL:  database "x" does not exist'), FailedPreconditionError),
        (psycopg.errors.InsufficientPrivilege("permission denied"), FailedPreconditionError),
        (psycopg.errors.UniqueViolation("duplicate key"), UnavailableError),
    ],
)
def test_what_failures_mean(failure: psycopg.Error, meaning: type[Exception]) -> None:
    with pytest.raises(meaning, match="storage: cannot write: ") as caught, database_errors("cannot write"):
        raise failure
    assert type(caught.value) is meaning
