"""A PostgreSQL of the system's package, in a temporary folder, run by an unprivileged user."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.ports import free_port

#: Where Debian has the programs of each version.
_DEBIAN = Path("/usr/lib/postgresql")
#: Whom it runs as where the tests are run by root, which it refuses.
_USERS = ("postgres", "nobody")


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL."""
    found = sorted(_DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    path = str(found[-1]) if found else shutil.which(name)
    assert path is not None, f"there is no {name}: apt-get install postgresql"
    return path


class PostgresqlServer:
    """A server that can be stopped and started.

    Args:
        folder: of its files.
        fsync: what is committed survives a loss of power; tests need not wait for that.

    Attributes:
        port: where it listens, on 127.0.0.1.
        folder: see above.
        user: arguments of `subprocess`, with which programs run as the server does.
    """

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        self.folder = folder
        self._fsync = "on" if fsync else "off"
        self.port = free_port()
        self._numbers = itertools.count()
        self.user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = next(name for name in _USERS if _is_user(name))
            entry = pwd.getpwnam(user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
            self.user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": ()}
        self._run(
            "initdb", "-D", str(folder / "data"), "-U", "cogment", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = f"-c listen_addresses=127.0.0.1 -c max_connections=60 -c fsync={self._fsync}"
        options = f"-p {self.port} -k {self.folder} {settings}"
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-w", "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `smart`, `fast`, or `immediate`, which is a crash."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def database(self, *, encoding: str = "UTF8") -> str:
        """Make a database, and return its address."""
        name = f"d{next(self._numbers)}"
        command = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
        self.query("postgres", command)
        return f"postgresql://cogment@127.0.0.1:{self.port}/{name}"

    def query(self, database: str, command: str) -> str:
        """Return what psql prints of a command."""
        return self.tool("psql", database, "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", command)

    def tool(self, name: str, database: str, *arguments: str) -> str:
        """Return what one of its programs prints that is run on a database."""
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "cogment", "-d", database)
        return self._run(name, *where, *arguments)

    def _run(self, name: str, *arguments: str) -> str:
        # Into a file: the server keeps what it has inherited open.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [program(name), *arguments], stdout=output, stderr=output, cwd=self.folder, check=False, **self.user
            )
            output.seek(0)
            text = output.read()
        assert done.returncode == 0, f"{name}: {text}"
        return text.strip()


@contextmanager
def postgresql_server(*, fsync: bool = False) -> Iterator[PostgresqlServer]:
    """Run a server for the time of the block."""
    # pytest's own folders are closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="trio-cogment-postgresql-"))
    try:
        server = PostgresqlServer(folder, fsync=fsync)
        server.start()
        try:
            yield server
        finally:
            with suppress(AssertionError):  # a test has stopped it
                server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def pgbouncer(server: PostgresqlServer, mode: str) -> Iterator[int]:
    """Run a pooler in front of a server for the time of the block; yield its port."""
    port = free_port()
    path = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert path is not None, "there is no pgbouncer: apt-get install pgbouncer"
    users, settings = server.folder / "users", server.folder / f"{mode}.ini"
    users.write_text('"cogment" ""\n')
    settings.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = trust\nauth_file = {users}\npool_mode = {mode}\nunix_socket_dir =\n"
        f"logfile = {server.folder}/{mode}.log\n"
    )
    process = subprocess.Popen([path, "-q", str(settings)], cwd=server.folder, **server.user)
    try:
        _wait_for_port(port)
        yield port
    finally:
        process.kill()
        process.wait()


def _wait_for_port(port: int) -> None:
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens on {port}")


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
