"""Checks of the files, folders and buckets of a server: who may read and write them, and who else has them."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from trio_cogment.base.errors import CogmentError, MissingExtraError
from trio_cogment.base.host.files import LOCK
from trio_cogment.base.object_store import ObjectStore
from trio_cogment.base.postgresql import CHECK_INTERVAL, facts_of, shown
from trio_cogment.cli.doctor.findings import Finding, fail, ok, warn

_OTHERS = 0o077
#: See `trio_cogment.servers.model_registry.ObjectBlobs`.
_OPENED = ".opened"
_SQLITE = b"SQLite format 3\0"
_MEBIBYTE = 2**20
#: Of a datastore in PostgreSQL.
_CONNECTIONS = 7
_CLOCK_SECONDS = 5.0
#: Below these, in MiB, a disk is said to be nearly full, or full.
_LITTLE, _TOO_LITTLE = 1024, 64
#: A bucket that is away is waited for that long.
_BUCKET_SECONDS = 3.0
#: The difference of clocks that is told.
_MOST_SECONDS = 60.0


def file(what: str, path: Path, *, database: bool = False) -> Iterator[Finding]:
    """Check a file with data, which need not exist yet.

    Args:
        what: is in it.
        path: where it is.
        database: it is one of SQLite.
    """
    path = path.absolute()
    if not path.exists():
        yield _new(what, path)
        return
    if not path.is_file():
        yield fail(what, f"{path}: no file", "move it away, or name another place")
        return
    yield from _there(what, path, locks=(f"{path}{LOCK}", str(path)), mode=0o600)
    if database:
        try:
            with path.open("rb") as opened:
                start = opened.read(len(_SQLITE))
        except OSError:
            return  # as has been said
        if start and start != _SQLITE:
            yield fail(what, f"{path}: no database of SQLite", "move it away, or name another file")


def folder(what: str, path: Path) -> Iterator[Finding]:
    """Check a folder with data, which need not exist yet."""
    path = path.absolute()
    if not path.exists():
        yield _new(what, path)
        return
    if not path.is_dir():
        yield fail(what, f"{path}: no folder", "move it away, or name another place")
        return
    yield from _there(what, path, locks=(str(path / LOCK), str(path)), mode=0o700)


def bucket(what: str, url: str) -> Iterator[Finding]:
    """Check a prefix of a bucket: rights, conditional writes, the clock. An object is made there, and removed."""
    try:
        store = ObjectStore(url, retry_seconds=_BUCKET_SECONDS)
        found = store.check()
        opened = _OPENED in [entry.key for entry in store.list()[1]]
    except MissingExtraError as error:
        yield fail(what, str(error), "install it where the server runs")
    except CogmentError as error:
        yield fail(what, str(error), "see docs/model-registry.md, In a bucket")
    except PermissionError as error:
        advice = "the key has to allow to read, write, list and delete below the prefix, and the clock has to be right"
        yield fail(what, f"{url}: {error.strerror}", advice)
    except OSError as error:
        yield fail(what, f"{url}: {error.strerror}", "see that the bucket is there, AWS_ENDPOINT_URL and AWS_REGION")
    else:
        yield ok(what, f"{url}: objects can be created, only once, read, listed and deleted")
        if opened:
            yield warn(what, f"{url}: a registry has it, or was killed", "stop it before another one uses this")
        ahead = time.time() - found.modified.timestamp()
        if abs(ahead) > _MOST_SECONDS:
            text = f"this machine's is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} that of {url}"
            yield warn("clock", text, "set it by NTP: with 15 minutes every request is refused")


def database(what: str, address: str) -> Iterator[Finding]:
    """Check a database of PostgreSQL: whether it can be reached, and is what a datastore needs."""
    place = shown(address)
    try:
        facts = facts_of(address)
    except CogmentError as error:
        yield fail(what, str(error), "see docs/datastore.md, In PostgreSQL")
        return
    yield ok(what, f"{place}: PostgreSQL {facts.version}")
    if not facts.may_create:
        yield fail(what, f"{place}: the user may not make tables", "GRANT CREATE ON DATABASE ... TO the user")
    if not facts.fsync:
        yield warn(what, f"{place}: fsync is off, so a crash loses what was acknowledged", "set fsync = on")
    if not facts.notices_clients:
        text = f"{place}: {CHECK_INTERVAL} cannot be set, so who was killed may hold up others while it waits"
        yield warn(what, text, "run the server on Linux, macOS or a BSD")
    if abs(facts.clock_seconds) > _CLOCK_SECONDS:
        text = f"{place}: its clock is {facts.clock_seconds:+.0f} s beside this machine's"
        yield warn(what, text, "synchronize both clocks")
    there, most = facts.connections
    if most - there < _CONNECTIONS:
        text = f"{place}: {there} of {most} connections are in use, and a datastore has up to {_CONNECTIONS}"
        yield warn(what, text, "raise max_connections")


def secret(what: str, path: Path) -> Finding:
    """Check that only its owner can read a file with a secret."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        with path.open("rb"):
            pass
    except OSError as error:
        return fail(what, f"{path}: {error.strerror or error}", "name a file that is there and can be read")
    if mode & _OTHERS:
        return fail(what, f"{path}: others on this machine can read it ({mode:04o})", f"chmod 600 {path}")
    return ok(what, f"{path}: only its owner can read it")


def disk(places: list[Path], patience: float, free: int | None = None) -> Iterator[Finding]:
    """Check how much room there is on the disks of some places.

    Args:
        places: files and folders, which need not exist yet.
        patience: how many seconds trials wait for a disk that is full.
        free: bytes; by default, what there is.
    """
    seen = set()
    for place in places:
        there = _existing(place.absolute())
        device = there.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        left = (shutil.disk_usage(there).free if free is None else free) // _MEBIBYTE
        text = f"{left:,} MiB free at {there}"
        advice = (
            "make room: without any, samples cannot be stored, and trials wait; after "
            f"{patience:g} s (datalog_full_seconds) they go on and lose samples"
        )
        if left < _TOO_LITTLE:
            yield fail("disk", text, advice)
        elif left < _LITTLE:
            yield warn("disk", text, advice)
        else:
            yield ok("disk", text)


def _there(what: str, path: Path, *, locks: tuple[str, ...], mode: int) -> Iterator[Finding]:
    if not os.access(path, os.R_OK | os.W_OK):
        yield fail(what, f"{path}: this user cannot read and write it", "run as its owner, or change its owner")
        return
    if any(map(is_locked, locks)):
        yield warn(what, f"{path}: a server has it", "stop it before another one uses this, or name another place")
    found = stat.S_IMODE(path.stat().st_mode)
    if found & _OTHERS:
        yield warn(what, f"{path}: others on this machine can get at it ({found:04o})", f"chmod {mode:o} {path}")
    else:
        yield ok(what, f"{path}: only this user can read and write it")


def is_locked(path: str) -> bool:
    """Tell whether a process holds the lock that `Files.lock` takes on this file; False if that cannot be found out."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):  # a name with a null character
        return False
    try:
        import fcntl  # not on every system, and needed only where there is a file

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    finally:
        os.close(descriptor)
    return False


def _new(what: str, path: Path) -> Finding:
    there = _existing(path)
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return ok(what, f"{path}: will be made")
    return fail(what, f"{path}: cannot be made in {there}", "name another place, or let this user write there")


def _existing(path: Path) -> Path:
    """Return the nearest place above that exists, or the path itself."""
    return next(place for place in (path, *path.parents) if place.exists())
