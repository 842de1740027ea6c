"""The file of an experiment: participants, groups and events in SQLite, written together.

A participant's state and the events that led to it are in one transaction: after a stop, whichever way, the one is what
the other says. Answers and actions are events; the tables that people read are made of these (`tables`). Events have
the time of the samples of trials: nanoseconds since the epoch, of this machine's clock.

Nothing here knows of Trio: it belongs into worker threads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from trio_cogment.base.errors import FailedPreconditionError, NotFoundError
from trio_cogment.base.sqlite_file import SqliteFormat, WritingConnection, connect, empty_log, file_errors
from trio_cogment.base.sqlite_hold import DatabaseHold

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE participants (
    id TEXT PRIMARY KEY,
    ticket TEXT NOT NULL,
    parameters TEXT NOT NULL,
    data TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE groups (number INTEGER PRIMARY KEY, data TEXT NOT NULL);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ns INTEGER NOT NULL,
    participant TEXT NOT NULL,
    what TEXT NOT NULL,
    grp INTEGER,
    detail TEXT NOT NULL
);
CREATE INDEX events_of ON events (participant, seq);
CREATE TABLE recoveries (count INTEGER NOT NULL);
INSERT INTO recoveries VALUES (0);
"""
FORMAT = SqliteFormat(user="server of an experiment", application_id=0x54434578, version=1, schema=_SCHEMA)  # "TCEx"

#: In `meta` while something of those who were forgotten may be in the file.
_UNCLEAN = "unclean"

#: JSON of what is stored.
Data: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        time_ns: since the epoch.
        participant: the id; empty: it is about a group, or the server.
        what: the kind of event.
        group: the number of the group; None: there is none.
        detail: what JSON can have.
    """

    time_ns: int
    participant: str
    what: str
    group: int | None = None
    detail: Data = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredParticipant:
    """A participant as it is stored.

    Attributes:
        id: of the participant.
        ticket: the hash of what the browser has, by which it is known again.
        parameters: of the link.
        data: see `machine.Participant.to_data`.
    """

    id: str
    ticket: str
    parameters: dict[str, str]
    data: Data


@dataclass(slots=True)
class Batch:
    """What is stored together.

    Attributes:
        meta: names and values.
        participants: those that are new or changed.
        groups: the data of groups, by their numbers.
        events: in their order.
        forgotten: ids of participants of whom nothing is kept, not even in what SQLite has deleted.
        dropped: ids of participants of whom nothing is kept that could be read.
    """

    meta: dict[str, str] = field(default_factory=dict)
    participants: dict[str, StoredParticipant] = field(default_factory=dict)
    groups: dict[int, Data] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


class ExperimentStore:
    """The file of one experiment, from `open` to `close`; it is made if it is not there. One thread at a time.

    Args:
        path: of the file; links are followed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)
        self._hold = DatabaseHold(FORMAT, self.path)
        self._writing = WritingConnection(self.path, full=True, missing=self._hold.missing)

    def open(self) -> None:
        """Open the file.

        Raises:
            FailedPreconditionError: the file cannot be used, or another process has it open.
            CogmentError: see `file_errors`.
        """
        folder = os.path.dirname(self.path)
        with file_errors(f"cannot make {folder}"):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        try:
            self._hold.open()
        except BaseException:
            self._hold.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._writing.close()
        self._hold.close()

    def write(self, batch: Batch) -> None:
        """Store a batch, all or nothing of it.

        Raises:
            FailedPreconditionError: there are `forgotten` ones, and another program is reading the file. Nothing was
                stored, unless it has begun only just now; `is_unclean` in any case.
            CogmentError: see `file_errors`; nothing was stored.
        """
        if batch.forgotten:
            # First a change that a program which is reading now does not see: only then does it show that there is one.
            with self._writing.transaction() as connection:
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, 'true')", (_UNCLEAN,))
            self._scrub("")
        with self._writing.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", batch.meta.items())
            connection.executemany(
                "INSERT OR REPLACE INTO participants VALUES (?, ?, ?, ?)",
                (
                    (each.id, each.ticket, _text(each.parameters), _text(each.data))
                    for each in batch.participants.values()
                ),
            )
            connection.executemany(
                "INSERT OR REPLACE INTO groups VALUES (?, ?)",
                ((number, _text(data)) for number, data in batch.groups.items()),
            )
            connection.executemany(
                "INSERT INTO events (time_ns, participant, what, grp, detail) VALUES (?, ?, ?, ?, ?)",
                ((each.time_ns, each.participant, each.what, each.group, _text(each.detail)) for each in batch.events),
            )
            for who in (*batch.forgotten, *batch.dropped):
                connection.execute("DELETE FROM participants WHERE id = ?", (who,))
                connection.execute("DELETE FROM events WHERE participant = ?", (who,))
        if batch.forgotten:
            self.clean()

    @property
    def is_unclean(self) -> bool:
        """Whether there may be something in the file of those who were forgotten: the program was killed, say."""
        return _UNCLEAN in self.meta()

    def clean(self) -> None:
        """Have nothing of what was deleted be in the file's free pages, or in its log.

        Raises:
            FailedPreconditionError: another program is reading the file; `is_unclean` stays true.
            CogmentError: see `file_errors`.
        """
        self._scrub("VACUUM")
        with self._writing.transaction() as connection:
            connection.execute("DELETE FROM meta WHERE name = ?", (_UNCLEAN,))

    def _scrub(self, before: str) -> None:
        # A transaction of their own is not possible for either.
        with file_errors(f"cannot write to {self.path}"):
            self._writing.close()
            with closing(connect(self.path)) as connection:
                connection.execute(before)
                empty_log(connection, self.path)

    def meta(self) -> dict[str, str]:
        """Return names and values that are kept for the experiment as a whole."""
        return dict(self._rows("SELECT name, value FROM meta"))

    def participants(self) -> list[StoredParticipant]:
        """Return all participants, in the order in which they came."""
        rows = self._rows("SELECT id, ticket, parameters, data FROM participants")
        found = [StoredParticipant(who, ticket, json.loads(more), json.loads(data)) for who, ticket, more, data in rows]
        return sorted(found, key=lambda each: int(each.data["number"]))

    def groups(self) -> list[Data]:
        """Return the data of all groups."""
        return [json.loads(data) for (data,) in self._rows("SELECT data FROM groups ORDER BY number")]

    def events(self, *what: str) -> Iterator[Event]:
        """Yield events in their order.

        Args:
            what: only events of these kinds.
        """
        where = f" WHERE what IN ({', '.join('?' * len(what))})" if what else ""
        sql = f"SELECT time_ns, participant, what, grp, detail FROM events{where} ORDER BY seq"
        for time_ns, participant, kind, group, detail in self._rows(sql, what):
            yield Event(time_ns, participant, kind, group, json.loads(detail))

    def last_answered(self, trial_id: str) -> int:
        """Return the last tick of a trial that somebody is known to have answered; -1: there is none."""
        sql = (
            "SELECT max(json_extract(detail, '$.tick')) FROM events "
            "WHERE what IN ('action', 'stand-in', 'wizard') AND json_extract(detail, '$.trial_id') = ?"
        )
        [(tick_id,)] = self._rows(sql, (trial_id,))
        return -1 if tick_id is None else int(tick_id)

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> Iterable[Any]:
        with file_errors(f"cannot read {self.path}"):
            return self._hold.reader.execute(sql, values)


@contextmanager
def opened_store(path: str | os.PathLike[str], name: str) -> Iterator[ExperimentStore]:
    """Have the file of an experiment open for the time of a `with` block.

    Args:
        path: of the file; it is made if it is not there.
        name: of the experiment.

    Raises:
        FailedPreconditionError: the file cannot be used, is another experiment's, or another process has it open.
        CogmentError: see `file_errors`.
    """
    store = ExperimentStore(path)
    store.open()
    try:
        of = store.meta().get("name", name)
        if of != name:
            raise FailedPreconditionError(f"{store.path} is of the experiment {of!r}, and the file's name is {name!r}")
        yield store
    finally:
        store.close()


def trials_of(store: ExperimentStore, participant: str) -> list[str]:
    """Return the ids of the trials that somebody has taken part in.

    Raises:
        NotFoundError: nothing is known of such a participant.
    """
    if all(each.id != participant for each in store.participants()):
        raise NotFoundError(f"there is no participant {participant!r} in {store.path}")
    seats = (each for each in store.events("seat") if each.participant == participant)
    return list(dict.fromkeys(each.detail["trial_id"] for each in seats))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
