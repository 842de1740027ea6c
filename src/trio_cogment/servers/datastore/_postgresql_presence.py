"""The session of a datastore process in PostgreSQL: it hears of others' samples, and ends the trials of dead ones.

The session holds a lock under the number of this writer, listens for what others have written, and looks for writers
that have no session any more. Nobody has to renew anything: the database ends a session when its client is gone, and
the lock goes with it. The trials of such a writer are marked as ended abnormally, as `_leases` does within a process.

After the database has restarted nobody has a session, for a while; and for who has just lost its own it may look so.
Then nobody is taken for gone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from trio_cogment.base.backoff import Backoff
from trio_cogment.base.errors import CogmentError, UnavailableError
from trio_cogment.base.host import Runner
from trio_cogment.base.postgresql import check_server, connect, database_errors, shown
from trio_cogment.servers.datastore._postgresql_statements import LOCK_WRITER, from_text, key_of, prepare
from trio_cogment.servers.datastore._recurring_failure import RecurringFailure
from trio_cogment.servers.datastore._watching import Watches
from trio_cogment.servers.datastore.storage import ELSEWHERE, RELEASED

if TYPE_CHECKING:
    from random import Random

    from psycopg import Connection

_log = logging.getLogger(__name__)

CHANNEL = "trio_cogment_trials"
#: A notification may have 8000 bytes.
_PAYLOAD_BYTES = 7900
#: More notifications than this at a time are one, which says that anything may have changed.
_MOST_PAYLOADS = 4
_EVERYTHING = "*"

#: Whoever follows a trial learns of a sample after this time at the latest, if a notification was lost.
POLL_SECONDS = 1.0
#: How long a writer has had no session when it counts as gone; it is looked for at each poll.
GONE_SECONDS = 5.0
#: How long nobody counts as gone, after the start of the database and after a loss of the own session.
PAUSE_SECONDS = 45.0
_RECONNECT_SECONDS = 0.1, 2.0

_OPEN_TRIALS = b"""
SELECT number, coalesce(long_id, trial_id) FROM trials WHERE writer = %s AND ending = 0 AND logged
ORDER BY trial_id FOR UPDATE
"""
_RELEASE = b"""
UPDATE trials SET endpoint = %s, writer = 0, changes = changes + 1
WHERE number = ANY(%s::bigint[]) AND writer = %s AND attempt > 0
"""
#: Their orchestrators are other processes, which may be alive: these have a lease, which another datastore keeps.
_ADOPT = b"""
UPDATE trials SET writer = %s, changes = changes + 1
WHERE number = ANY(%s::bigint[]) AND attempt > 0 AND starts_with(endpoint, %s) RETURNING coalesce(long_id, trial_id)
"""
_LIVING = b"""
SELECT number, number IN (
    SELECT objid::integer FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = %s
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
FROM writers WHERE NOT gone
"""
_AGE = b"SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8"
#: Of writers of yesterday and before only those are kept that have a session or an open trial.
_CLEAN_UP = b"""
DELETE FROM writers WHERE began < now() - interval '1 day'
    AND NOT EXISTS (SELECT FROM trials WHERE writer = writers.number AND ending = 0 AND logged)
    AND number NOT IN (SELECT objid::integer FROM pg_locks WHERE locktype = 'advisory' AND classid = %s)
"""


def payloads_of(writer: int, trial_ids: Iterable[str], *, trials: bool) -> list[str]:
    """Return what others are told of changes, each text short enough for a notification."""
    head = f"{writer} {'t' if trials else '-'} "
    payloads: list[str] = []
    ids: list[str] = []
    size = len(head) + 2
    for trial_id in trial_ids:
        # Not more bytes than characters: JSON escapes what is not ASCII.
        more = len(json.dumps(trial_id)) + 2
        if ids and size + more > _PAYLOAD_BYTES:
            payloads.append(head + json.dumps(ids))
            ids, size = [], len(head) + 2
        ids.append(trial_id)
        size += more
    payloads.append(head + json.dumps(ids))
    if len(payloads) > _MOST_PAYLOADS or any(len(payload) > _PAYLOAD_BYTES for payload in payloads):
        return [head + _EVERYTHING]
    return payloads


class Gone(NamedTuple):
    """What was done about a writer that is gone.

    Attributes:
        trials: the open ones that it had.
        adopted: those of them that this writer has now.
    """

    trials: list[str]
    adopted: list[str]


class PresenceSession:
    """The connection of a process that others see; one thread at a time uses it.

    Args:
        address: of the database.

    Attributes:
        number: of this writer; 0: it has none yet.
        heard: notifications that have come, until they are taken.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: Connection[Any] | None = None
        self._is_checked = False
        self.number = 0
        self.heard: list[str] = []

    def open(self, *, renew: bool) -> None:
        """Connect, become a writer or be the one again that this was, and listen.

        Args:
            renew: others count this writer as gone: become another one.

        Raises:
            FailedPreconditionError: the database cannot be used; the text says why.
            CogmentError: see `database_errors`.
        """
        self.close()
        connection = self._connection = connect(self._address, purpose="datastore presence")
        with database_errors(f"cannot use {shown(self._address)}"):
            if not self._is_checked:
                again = connect(self._address, purpose="datastore start")
                try:
                    check_server(connection, self._address, again)
                finally:
                    again.close()
            prepare(connection, self._address)
            self._is_checked = True
            before, self.number = self.number, self._enter(connection, 0 if renew else self.number)
            if before not in (0, self.number):
                self._take_over(connection, before)
            connection.add_notify_handler(lambda notify: self.heard.append(notify.payload))
            connection.execute(f"LISTEN {CHANNEL}".encode())
            connection.execute(_CLEAN_UP, (LOCK_WRITER,))

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    def close(self) -> None:
        """End the session."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _enter(self, connection: Connection[Any], number: int) -> int:
        if number:
            lock = b"SELECT pg_try_advisory_lock(%s, number) FROM writers WHERE number = %s AND NOT gone"
            # Somebody may look, in this moment, whether this writer is gone; or the session before is not at its end.
            if connection.execute(lock, (LOCK_WRITER, number)).fetchone() == (True,):
                return number
        row = connection.execute(b"INSERT INTO writers DEFAULT VALUES RETURNING number").fetchone()
        assert row is not None
        connection.execute(b"SELECT pg_advisory_lock(%s, %s)", (LOCK_WRITER, row[0]))
        return int(row[0])

    def _take_over(self, connection: Connection[Any], before: int) -> None:
        with connection.transaction():
            numbers = [number for number, _ in connection.execute(_OPEN_TRIALS, (before,)).fetchall()]
            moved = b"UPDATE trials SET writer = %s, changes = changes + 1 WHERE number = ANY(%s::bigint[])"
            connection.execute(moved, (self.number, numbers))

    # While it is open

    def _open(self) -> Connection[Any]:
        if self._connection is None:
            raise UnavailableError(f"storage: not connected to {shown(self._address)}")
        return self._connection

    def fileno(self) -> int:
        """Return what is readable when something has come."""
        return self._open().fileno()

    def take(self) -> None:
        """Put what has come to `heard`. Never blocks.

        Raises:
            TransientError: the connection broke.
        """
        with database_errors(f"cannot listen to {shown(self._address)}"):
            pgconn = self._open().pgconn
            pgconn.consume_input()
            while notify := pgconn.notifies():
                self.heard.append(notify.extra.decode())

    def changes_of(self, trial_ids: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return, of those of these trials that are there, number and how often they were written to."""
        with database_errors(f"cannot read from {shown(self._address)}"):
            query = b"SELECT trial_id, number, changes FROM trials WHERE trial_id = ANY(%s::text[])"
            keys = {key_of(trial_id): trial_id for trial_id in trial_ids}
            rows = self._open().execute(query, (list(keys),)).fetchall()
            return {keys[key]: (number, changes) for key, number, changes in rows}

    def writers(self) -> tuple[float, dict[int, bool]]:
        """Return how many seconds the database has been up, and which writers there are, and have a session."""
        with database_errors(f"cannot read from {shown(self._address)}"):
            connection = self._open()
            row = connection.execute(_AGE).fetchone()
            assert row is not None
            return row[0], dict(connection.execute(_LIVING, (LOCK_WRITER,)).fetchall())

    def end_of(self, writer: int, *, releases: bool = False, adopts: bool = False) -> Gone | None:
        """Count a writer as gone, and end its trials; None: it is there after all.

        Args:
            writer: its number.
            releases: those whose attempts are counted are handed over, for this process goes on with trials.
            adopts: those of orchestrators in other processes are this writer's from now on.
        """
        with database_errors(f"cannot write to {shown(self._address)}"):
            connection = self._open()
            with connection.transaction():
                locked = connection.execute(b"SELECT pg_try_advisory_xact_lock(%s, %s)", (LOCK_WRITER, writer))
                if locked.fetchone() != (True,):
                    return None
                # As all who write do, in this order; what the writer has under way is waited for.
                gone = connection.execute(b"UPDATE writers SET gone = true WHERE number = %s AND NOT gone", (writer,))
                if not gone.rowcount:
                    return Gone([], [])
                rows = connection.execute(_OPEN_TRIALS, (writer,)).fetchall()
                numbers = [number for number, _ in rows]
                adopted: list[str] = []
                if adopts:
                    found = connection.execute(_ADOPT, (self.number, numbers, ELSEWHERE)).fetchall()
                    adopted = [from_text(trial_id) for (trial_id,) in found]
                if releases:
                    connection.execute(_RELEASE, (RELEASED, numbers, writer))
                ended = b"""
                UPDATE trials SET ending = 2, changes = changes + 1 WHERE number = ANY(%s::bigint[]) AND writer = %s
                """
                connection.execute(ended, (numbers, writer))
        return Gone([from_text(trial_id) for _, trial_id in rows], adopted)


class Presence:
    """Keeps a `PresenceSession` open, wakes watches, and ends the trials of writers that are gone.

    Args:
        session: is kept open.
        run: runs what blocks, in one thread.
        watches: are woken when others have written.
        on_ended: called with the trials that a writer had which is gone.
        rng: makes the pauses between attempts differ.

    Attributes:
        number: of this writer, while it has a session; 0: it has none now.
        reconnections: how often it was made anew.
        releases: trials of writers that are gone are not ended but handed over; see `PresenceSession.end_of`.
        adopts: called with those of them that this writer has now; None: it takes none.
    """

    def __init__(
        self,
        session: PresenceSession,
        run: Runner,
        watches: Watches,
        on_ended: Callable[[Collection[str]], None],
        rng: Random,
    ) -> None:
        self._session = session
        self._run = run
        self._watches = watches
        self._on_ended = on_ended
        self._backoff = Backoff(*_RECONNECT_SECONDS, rng)
        self._changed = trio.lowlevel.ParkingLot()
        self._failure: CogmentError | None = None
        self._known: dict[str, tuple[int, int]] = {}
        #: Writers that had no session when this process began: their trials are given time by its leases.
        self._before: set[int] = set()
        #: Other writers that have no session, and since when. A row is there a moment before its writer has the lock.
        self._missing: dict[int, float] = {}
        self._quiet_until = trio.current_time()
        self._renew = False
        self.number = 0
        self.reconnections = 0
        self.releases = False
        self.adopts: Callable[[Collection[str]], None] | None = None

    async def open(self) -> None:
        """Open the session for the first time.

        Raises:
            CogmentError: see `PresenceSession.open`.
        """
        await self._run(lambda: self._session.open(renew=False))
        _, writers = await self._run(self._session.writers)
        self._before = {number for number, lives in writers.items() if not lives}
        self.number = self._session.number

    async def there(self, deadline: float) -> int:
        """Return the number of this writer, as soon as it has a session.

        Raises:
            CogmentError: it has had none until the deadline; the text says why.
        """
        with trio.move_on_at(deadline):
            while not self.number:
                await self._changed.park()
        if self.number:
            return self.number
        raise UnavailableError(str(self._failure or "storage: the database is away"))

    def renew(self, number: int) -> None:
        """Become another writer: others count this number as gone."""
        if self.number == number:
            self._renew = True
            self.number = 0
            self._changed.unpark_all()

    async def run(self) -> None:
        """Keep the session, indefinitely."""
        what = "the session of this datastore in the database was lost"
        failure = RecurringFailure(_log, what, "this datastore has a session in the database again")
        while True:
            try:
                if not self.number:
                    await self._open_again()
                failure.worked()
                await self._serve()
            except CogmentError as error:
                self.number, self._failure = 0, error
                failure.failed(error)
                await trio.sleep(self._backoff.failed())
            except Exception as error:  # noqa: BLE001  a bug here must not end the service of all trials
                _log.exception(what)
                self.number, self._failure = 0, UnavailableError(f"storage: {error!r}")
                await trio.sleep(self._backoff.failed())

    async def _open_again(self) -> None:
        renew, self._renew = self._renew, False
        await self._run(lambda: self._session.open(renew=renew))
        self.reconnections += 1
        self.number = self._session.number
        self._backoff.reset()
        self._missing.clear()
        self._quiet_until = trio.current_time() + PAUSE_SECONDS
        self._watches.notify_all()
        self._changed.unpark_all()

    async def _serve(self) -> None:
        poll_at = trio.current_time() + POLL_SECONDS
        while self.number:
            with trio.move_on_at(poll_at):
                await trio.lowlevel.wait_readable(self._session.fileno())
                self._session.take()
                self._note()
                await trio.lowlevel.checkpoint()
                if trio.current_time() < poll_at:
                    continue
            await self._poll()
            self._note()
            poll_at = trio.current_time() + POLL_SECONDS

    def _note(self) -> None:
        heard, self._session.heard = self._session.heard, []
        for payload in heard:
            writer, trials, ids = payload.split(" ", 2)
            if int(writer) == self.number:
                continue  # its own watches were woken at once
            if ids == _EVERYTHING:
                self._watches.notify_all()
            else:
                self._watches.notify(json.loads(ids), trials=trials == "t")

    async def _poll(self) -> None:
        watched = self._watches.trial_ids()
        found: Mapping[str, tuple[int, int]] = {}
        if watched:
            found = await self._run(self._session.changes_of, watched)
            news = {trial_id for trial_id in watched if self._known.get(trial_id) != found.get(trial_id)}
            self._watches.notify(news, trials=True)
        else:
            self._watches.notify((), trials=True)
        self._known = dict(found)
        await self._look_for_gone()

    async def _look_for_gone(self) -> None:
        up_seconds, writers = await self._run(self._session.writers)
        now = trio.current_time()
        for number, lives in writers.items():
            if lives:
                self._before.discard(number)
                self._missing.pop(number, None)
            elif number not in self._before and number != self.number:
                # It may have come and gone between two looks.
                self._missing.setdefault(number, now)
        for number in [number for number in self._missing if number not in writers]:
            del self._missing[number]
        if up_seconds < PAUSE_SECONDS or now < self._quiet_until:
            self._missing.clear()
            return
        for number in [number for number, since in self._missing.items() if now - since >= GONE_SECONDS]:
            del self._missing[number]
            how = {"releases": self.releases, "adopts": self.adopts is not None}
            gone = await self._run(partial(self._session.end_of, number, **how))
            if gone is not None and gone.trials:
                what = "handed over, or ended abnormally" if self.releases else "marked as ended abnormally"
                text = "another datastore is gone: of its %d open trials %d are this one's, the others are %s"
                _log.warning(text, len(gone.trials), len(gone.adopted), what)
                if self.adopts is not None:
                    self.adopts(gone.adopted)
                self._watches.notify(gone.trials, trials=True)
                self._on_ended(gone.trials)
