"""A directory's registrations in a row of a real PostgreSQL: they outlive a machine, and have one writer."""

from __future__ import annotations

import pytest

from tests.stores.postgresql_server import PostgresqlServer
from trio_cogment.base.errors import FailedPreconditionError, UnavailableError
from trio_cogment.base.host.files import SystemFiles
from trio_cogment.cli.services.kept import shown_file
from trio_cogment.servers.directory import DirectoryServer, Service
from trio_cogment.servers.directory._documents import Document, document_of

pytestmark = [pytest.mark.stores, pytest.mark.postgresql]


def document(address: str) -> Document:
    return document_of(address, SystemFiles())


def test_one_of_two_writes(database: str) -> None:
    first, second, other = document(database), document(database), document(f"{database}#other")
    assert first.open() is second.open() is other.open() is None
    first.replace(b"1")
    with pytest.raises(FileExistsError, match="another directory has written it"):
        second.replace(b"2")
    other.replace(b"other")
    assert second.open() == b"1"
    second.replace(b"3")
    second.replace(b"4")
    with pytest.raises(FileExistsError):
        first.replace(b"5")
    assert first.open() == b"4"
    assert first.put_aside() == f"the row 'directory.unreadable' of {database}"
    assert "directory.unreadable.2" in first.put_aside()
    assert other.open() == b"other"


def test_what_was_removed_is_written_again(postgresql: PostgresqlServer, database: str) -> None:
    one = document(database)
    one.open()
    one.replace(b"1")
    postgresql.query(database.rpartition("/")[2], "DELETE FROM trio_cogment.documents")
    one.replace(b"2")
    assert document(database).open() == b"2"


def test_a_database_that_restarts(postgresql: PostgresqlServer, database: str) -> None:
    one = document(database)
    one.open()
    one.replace(b"1")
    postgresql.stop("immediate")
    with pytest.raises(OSError, match="cannot connect"):
        one.replace(b"2")
    postgresql.start()
    one.replace(b"3")
    assert document(database).open() == b"3"


async def test_a_directory_goes_on_on_another_machine(database: str) -> None:
    async def register(directory: DirectoryServer, host: str) -> None:
        service = Service(kind=1, protocol=2, host=host, port=9000, properties={"at": host})
        await directory.register(service, permanent=True)

    async with DirectoryServer(path=database) as first:
        await register(first, "10.0.0.1")
        async with DirectoryServer(path=database) as second:
            with pytest.raises(UnavailableError):
                await register(first, "10.0.0.2")
            await register(second, "10.0.0.3")
            assert (first.count, second.count) == (1, 2)


async def test_a_database_that_is_not_there(postgresql: PostgresqlServer) -> None:
    address = f"postgresql://cogment:secret@127.0.0.1:{postgresql.port}/nowhere"
    with pytest.raises(FailedPreconditionError, match="nowhere") as caught:
        async with DirectoryServer(path=address):
            pass
    assert "secret" not in str(caught.value)
    assert shown_file(address) == address.replace("secret", "***")
