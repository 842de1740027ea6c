"""Sources of a data set's trials: a datastore of this process, one that runs elsewhere, or a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.base.host import Host
from trio_cogment.base.plugins import STORES, installed
from trio_cogment.base.postgresql import SCHEMES
from trio_cogment.rpc import open_in_process
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES
from trio_cogment.sdk import DatastoreClient, connect
from trio_cogment.sdk.spec import Spec
from trio_cogment.servers.datastore import Datastore, datastore_services, open_store
from trio_cogment.servers.datastore.storage import TrialStore

if TYPE_CHECKING:
    from trio_cogment.platform import Platform

#: What trials come from; see `open_source`.
Source: TypeAlias = "DatastoreClient | Platform | str"

#: A sample, with pictures for example, may be larger than the default limit of a message.
SOURCE_RPC = RpcConfig(max_receive_message_bytes=256 * 1024 * 1024)

_FILE = "sqlite:"
_SERVICES = ("grpc://", "cogment://")


class Opened(NamedTuple):
    """What trials are read from.

    Attributes:
        client: of the datastore.
        store: its storage, if that is in this process.
    """

    client: DatastoreClient
    store: TrialStore | None = None


@asynccontextmanager
async def open_source(source: Source, *, spec: Spec | None = None) -> AsyncIterator[DatastoreClient]:
    """Open a datastore for the time of an `async with` block; see `open_storage`, which it is but for the storage."""
    async with open_storage(source, spec=spec) as opened:
        yield opened.client


@asynccontextmanager
async def open_storage(source: Source, *, spec: Spec | None = None) -> AsyncIterator[Opened]:
    """Open a datastore for the time of an `async with` block.

    Args:
        source: a client, or a platform with a store; or an address: `grpc://host:port` of a datastore that runs,
            `cogment://discover...`, or that of a storage: `postgresql://...`, `sqlite:trials.db`, which nobody else may
            use meanwhile, or the scheme of a plugin.
        spec: the types of the project.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: it is not a source; or it is the address of a new store, which has no trials.
        CogmentError: the storage cannot be opened, or the platform has no store.
    """
    if isinstance(source, DatastoreClient):
        yield Opened(source)
    elif not isinstance(source, str):
        platform = _platform_of(source)
        yield Opened(platform.datastore_client(), None if platform.datastore is None else platform.datastore.store)
    elif source.startswith(_SERVICES):
        async with connect(source, spec=spec, config=SOURCE_RPC) as client:
            yield Opened(await client.datastore())
    else:
        _check_there(source)
        host = Host()
        async with open_store(source, host=host) as store:
            # A datastore's tasks, which begin when it is entered, would end the trials that nobody goes on with here.
            services = datastore_services(Datastore(store))
            inside = RpcConfig(max_receive_message_bytes=UNLIMITED_BYTES)
            async with open_in_process(host, services, config=inside) as channel:
                yield Opened(DatastoreClient(channel, spec=spec), store)


def _platform_of(source: object) -> Platform:
    from trio_cogment.platform import Platform  # an export of a file needs none of it

    if not isinstance(source, Platform):
        got = type(source).__name__
        raise InvalidArgumentError(f"source: expected a client, a platform or an address, got {got}")
    return source


def _check_there(address: str) -> None:
    """Raise for anything but the address of a store that exists: a mistyped name must not make a file."""
    if address == "memory:":
        raise InvalidArgumentError("source: 'memory:' has no trials when it is opened: pass the platform or a client")
    scheme, colon, rest = address.partition(":")
    if scheme != "sqlite" and scheme not in (*SCHEMES, *installed(STORES)):
        meant = f"grpc://{address}" if colon and rest.isdecimal() else "" if colon else f"{_FILE}{address}"
        # Only the scheme is named of what has one: what follows may hold a password.
        got = repr(address) if meant else f"the scheme {scheme!r}"
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise InvalidArgumentError(f"source: expected 'sqlite:FILE' or 'grpc://host:port', got {got}{hint}")
    path = address.removeprefix(_FILE)
    if address.startswith(_FILE) and not Path(path).is_file():
        raise NotFoundError(f"source: there is no file {path!r}")
