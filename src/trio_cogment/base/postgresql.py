"""Connections to PostgreSQL, by psycopg: how they are made, what their failures mean, and what a server has to offer.

A connection belongs to one thread at a time, and everything here blocks. psycopg is imported by `connect` and not
before, because only who keeps something in PostgreSQL has to have it.

Three settings of each session bound how long a client that is gone holds others up (PostgreSQL's documentation, 20.3
"Connections and Authentication"). A server that runs a query does not notice that its client was killed, and keeps
the locks: `client_connection_check_interval` makes it look. A client whose machine is gone sends nothing: TCP's own
probes find that out. One that has a transaction open and does nothing is cut off.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    MissingExtraError,
    ResourceExhaustedError,
    UnavailableError,
)
from trio_cogment.base.records import record

if TYPE_CHECKING:
    from psycopg import Connection, Error

EXTRA = "postgresql"
SCHEMES = ("postgresql", "postgres")
#: The tables of this package are in a schema of their own, whatever else is in the database.
SCHEMA = "trio_cogment"

#: The oldest that knows `client_connection_check_interval`.
_OLDEST = 14
_CONNECT_SECONDS = 10
#: How long a machine that is gone stays unnoticed, as parameters of a connection on this side and as settings on that.
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}
_SETTINGS = {
    "search_path": SCHEMA,
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000",
    # Plans of short queries are not worth compiling.
    "jit": "off",
}
#: Systems without a way to see that the other end has hung up refuse any other value than 0.
CHECK_INTERVAL = "client_connection_check_interval"
_CHECK_INTERVAL_VALUE = "500ms"

#: What a password stands in: behind the user, and as a parameter.
_PASSWORDS = (re.compile(r"(?<=://)([^/?#@]*?):[^/?#]*@"), re.compile(r"((?:^|[?&\s])(?:ssl)?password=)[^&\s]*"))

#: Classes of SQLSTATE (PostgreSQL's documentation, appendix A) whose failures say nothing of what was asked for: the
#: connection, resources, an operator's intervention, the system. Deadlocks and failures to serialize end by themselves.
_PASSING = ("08", "40", "53", "57", "58")
#: And what somebody has to put right: authorization, the database's name, rights.
_OPERATORS = ("28", "3D", "42501")
_DISK_FULL = "53100"


class TransientError(UnavailableError):
    """The connection broke, or the server did something else first; a new transaction may work.

    Of a commit that fails so it is not known whether it was done.
    """


def is_database_url(address: str) -> bool:
    """Whether an address is one of a database: `postgresql://...`."""
    return address.partition("://")[0].lower() in SCHEMES and "://" in address


def shown(address: str) -> str:
    """Return an address as it may be shown to anybody: without its password."""
    for pattern in _PASSWORDS:
        address = pattern.sub(lambda found: f"{found[1]}:***@" if found[0].endswith("@") else f"{found[1]}***", address)
    return address


def check_address(address: str) -> None:
    """See that an address of a database is well-formed, as libpq takes it; no connection is made.

    Raises:
        InvalidArgumentError: it is not. The text shows no password.
        MissingExtraError: psycopg is not installed.
    """
    psycopg = _psycopg()
    try:
        if urlsplit(address).scheme not in SCHEMES:
            raise InvalidArgumentError(f"storage: expected postgresql://..., got {shown(address)!r}")
        psycopg.conninfo.conninfo_to_dict(address)
    except (psycopg.Error, ValueError):
        # libpq's own words repeat the address, with the password.
        raise InvalidArgumentError(
            "storage: expected postgresql://[user[:password]@][host][:port]/database[?name=value&...] with parameters "
            f"that libpq knows, got {shown(address)!r}"
        ) from None


def connect(address: str, *, purpose: str, durable: bool = True) -> Connection[Any]:
    """Return a new connection, on which each statement is a transaction unless it says BEGIN.

    Args:
        address: of the database; names are looked up in the schema `SCHEMA`.
        purpose: what the server's own views call the connection.
        durable: a commit survives a crash of the server.

    Raises:
        FailedPreconditionError: the server refuses this user, has no such database, or is too old.
        TransientError: it cannot be reached now.
        MissingExtraError: psycopg is not installed.
    """
    psycopg = _psycopg()
    where = shown(address)
    with database_errors(f"cannot connect to {where}"):
        given = psycopg.conninfo.conninfo_to_dict(address)
        defaults = {"connect_timeout": _CONNECT_SECONDS, "application_name": f"trio-cogment {purpose}", **_KEEPALIVES}
        missing = {name: value for name, value in defaults.items() if name not in given}
        connection: Connection[Any] = psycopg.connect(address, autocommit=True, **missing)
        try:
            if connection.info.server_version < _OLDEST * 10_000:
                found = connection.info.server_version // 10_000
                raise FailedPreconditionError(f"storage: {where} is PostgreSQL {found}; {_OLDEST} or later is needed")
            _settle(connection, durable)
        except BaseException:
            connection.close()
            raise
    return connection


def _settle(connection: Connection[Any], durable: bool) -> None:
    import psycopg

    settings = dict(_SETTINGS)
    row = connection.execute("SHOW synchronous_commit").fetchone()
    assert row is not None
    if durable and row[0] == "off":
        settings["synchronous_commit"] = "on"
    elif not durable:
        settings["synchronous_commit"] = "off"
    calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
    connection.execute(f"SELECT {calls}".encode(), [part for pair in settings.items() for part in pair])
    with suppress(psycopg.errors.InvalidParameterValue):
        connection.execute("SELECT set_config(%s, %s, false)", (CHECK_INTERVAL, _CHECK_INTERVAL_VALUE))


@contextmanager
def database_errors(what: str) -> Iterator[None]:
    """Say of a failure of the database in the block what it means.

    Args:
        what: what could not be done.

    Raises:
        TransientError: it may work on a new connection, now or later.
        ResourceExhaustedError: the server's disk is full.
        FailedPreconditionError: the server refuses; somebody has to do something about it.
        UnavailableError: anything else that it says.
    """
    import psycopg

    try:
        yield
    except CogmentError:
        raise
    except psycopg.Error as error:
        raise _meaning(error, what) from error


def _meaning(error: Error, what: str) -> CogmentError:
    import psycopg

    state = error.sqlstate or ""
    first_line = str(error).strip().splitlines()[:1]
    text = f"storage: {what}: {first_line[0] if first_line else type(error).__name__}"
    if state == _DISK_FULL:
        return ResourceExhaustedError(text)
    if state.startswith(_OPERATORS) or _is_refusal(error, state):
        return FailedPreconditionError(text)
    if state.startswith(_PASSING) or (
        not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    ):
        return TransientError(text)
    return UnavailableError(text)


def _is_refusal(error: Error, state: str) -> bool:
    # libpq reports a refused connection without the server's code.
    return not state and any(
        words in str(error)
        for words in (
            "password authentication failed",
            "does not exist",
            "no pg_hba.conf entry",
            "no password supplied",
        )
    )


def check_server(connection: Connection[Any], address: str, again: Connection[Any]) -> None:
    """See that a server can keep what is written, and that a session stays with its connection.

    Behind PgBouncer with `pool_mode = transaction` each transaction runs in any session of the server: locks that
    belong to a session, and what it listens to, would be somebody else's.

    Args:
        connection: to the server.
        address: of it.
        again: another connection to it.

    Raises:
        FailedPreconditionError: it cannot; the text says what has to be changed.
    """
    where = shown(address)
    with database_errors(f"cannot use {where}"):
        (encoding,) = _row(connection, "SHOW server_encoding")
        if encoding != "UTF8":
            raise FailedPreconditionError(
                f"storage: {where} is a database in {encoding}; texts need one that was created with ENCODING 'UTF8'"
            )
        (here,) = _row(connection, "SELECT pg_backend_pid()")
        if here == connection.info.backend_pid:
            return
        # A pooler is between: it may lend this session to the other connection, or move this one.
        again.execute("BEGIN")
        (there,) = _row(again, "SELECT pg_backend_pid()")
        (still,) = _row(connection, "SELECT pg_backend_pid()")
        again.execute("ROLLBACK")
        if there == here or still != here:
            raise FailedPreconditionError(
                f"storage: {where} is behind a pooler that gives each transaction another session (PgBouncer's "
                "pool_mode = transaction); connect to PostgreSQL itself, or set pool_mode = session"
            )


@record(kw_only=True)
class ServerFacts:
    """What a server is like, for whom it should serve.

    Attributes:
        version: of PostgreSQL, as it says it.
        clock_seconds: how far its clock is ahead of this machine's.
        may_create: the user may make the tables, or they are there.
        fsync: what is committed is on the disk.
        notices_clients: it notices while it runs a query that its client is gone.
        connections: there are, and there may be.
    """

    version: str
    clock_seconds: float
    may_create: bool
    fsync: bool
    notices_clients: bool
    connections: tuple[int, int]


_FACTS = b"""
SELECT current_setting('server_version'), extract(epoch FROM clock_timestamp())::float8,
    coalesce(has_schema_privilege(to_regnamespace(%s), 'CREATE, USAGE'),
        has_database_privilege(current_database(), 'CREATE')),
    current_setting('fsync') = 'on', current_setting('client_connection_check_interval') <> '0',
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::integer,
    current_setting('max_connections')::integer
"""


def facts_of(address: str) -> ServerFacts:
    """Return what a server is like; nothing is changed.

    Raises:
        InvalidArgumentError: it is no address.
        MissingExtraError: psycopg is not installed.
        FailedPreconditionError: it cannot be used; the text says why.
        UnavailableError: it cannot be reached.
    """
    check_address(address)
    with (
        connect(address, purpose="doctor") as connection,
        connect(address, purpose="doctor") as again,
        database_errors(f"cannot ask {shown(address)}"),
    ):
        check_server(connection, address, again)
        before = time.time()
        version, clock, may_create, fsync, notices, *connections = _row(connection, _FACTS, SCHEMA)
        # What passed on the way is not the clock's fault.
        ahead = min((clock - before, clock - time.time()), key=abs)
    return ServerFacts(
        version=version,
        clock_seconds=ahead,
        may_create=may_create,
        fsync=fsync,
        notices_clients=notices,
        connections=(connections[0], connections[1]),
    )


def _row(connection: Connection[Any], query: Any, *values: object) -> tuple[Any, ...]:
    row = connection.execute(query, values or None).fetchone()
    assert row is not None
    return tuple(row)


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError.of("psycopg", EXTRA, needed_for="a store in PostgreSQL") from error
    return psycopg
