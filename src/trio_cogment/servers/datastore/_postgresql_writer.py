"""The writer of trials in PostgreSQL: each batch in a transaction, done exactly once. Nothing here knows of Trio.

A commit whose answer is lost may have been done. So a transaction counts the batches of its writer, in a row that it
locks: the next transaction waits until it is certain what became of the one before, and the number tells.

A writer remembers the open trials that it writes to, and how often their rows have changed. While nobody else writes to
them, it asks for nothing: it sends what it expects, with what it writes, and the database does either all of it or
nothing.
"""

from __future__ import annotations

import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Protocol

from trio_cogment.base.errors import DataLossError
from trio_cogment.servers.datastore._postgresql_statements import (
    Begun,
    Changes,
    ChunkRow,
    NewTrial,
    Part,
    StaleError,
    TrialRow,
    as_text,
    key_of,
    properties_text,
)
from trio_cogment.servers.datastore._trial_edit import TrialEdit
from trio_cogment.servers.datastore._write_rules import (
    NO_SUCH_TRIAL,
    NO_TICK,
    Head,
    absent,
    is_deleted,
    replaced,
    taken,
)
from trio_cogment.servers.datastore.chunks import (
    DEFAULT_LEVEL,
    Chunk,
    ChunkCodec,
    ChunkSample,
    NewSamples,
    counted_chunk,
    decode,
)
from trio_cogment.servers.datastore.storage import (
    RELEASED,
    EndWrite,
    OutcomeWrite,
    SampleWrite,
    TrialEnd,
    TrialWrite,
    Write,
    trial_bytes,
)

#: The writer of trials that were handed over: it never has a session.
_NOBODY = 0
#: A chunk has no more bytes of samples than this, unless it has one sample: a page of a reader has about as many.
_CHUNK_BYTES = 256 * 1024
_CHUNK_SAMPLES = 2000
#: Where more trials than this have new chunks, these are copied.
_MOST_INSERTED = 32
#: So many trials are remembered.
_MOST_REMEMBERED = 1000

_trial_id_of = attrgetter("trial_id")

_log = logging.getLogger(__name__)


class Session(Protocol):
    """The part of `WritingSession` that the writer uses; see there."""

    def close(self) -> None: ...
    def unknown(self, keys: Collection[str]) -> set[str]: ...
    def begin(self, writer: int, keys: Collection[str], *, creates: bool) -> Begun: ...
    def write(self, writer: int, begun: Begun, added: Iterable[ChunkRow], rest: Callable[[], Changes]) -> None: ...
    def chunks(self, trial: int, first_tick: int, last_tick: int) -> list[ChunkRow]: ...
    def sessions(self) -> set[int]: ...
    def lock_ended(self, keys: Collection[str]) -> list[tuple[int, str, int]]: ...
    def delete(self, numbers: Sequence[int]) -> None: ...
    def commit(self, added: Iterable[ChunkRow], rest: Callable[[], Changes], *, copies: bool) -> None: ...
    def begin_merge(self, trial: int, after: int) -> tuple[str, list[Part]] | None: ...
    def run(self, trial: int, first: int, last: int) -> list[Chunk]: ...
    def commit_merge(self, trial: int, merged: Chunk, last: int, growth: int) -> None: ...
    def roll_back(self) -> None: ...


class WriterGoneError(Exception):
    """Others have found that this writer had no session, and count it as gone: it has to become another one."""


@dataclass(slots=True)
class Written:
    """The result of a batch.

    Attributes:
        refused: which writes were refused, and why.
        trial_ids: the trials that were written to.
        trials: a trial was created, ended, opened again or deleted, or its parameters have changed.
        ended: the numbers of trials that have ended with this.
    """

    refused: dict[int, str] = field(default_factory=dict)
    trial_ids: set[str] = field(default_factory=set)
    trials: bool = False
    ended: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Batch:
    """Writes that are done together, and what is known of attempts to.

    Attributes:
        writes: the writes.
        committing: the writer, the number of the batch, and the result, of the attempt whose commit was begun.
    """

    writes: Sequence[Write]
    committing: tuple[int, int, Written] | None = None

    def is_done(self, writer: int, last: int | None) -> Written | None:
        """Return the result if the attempt before was committed; None: it was not, or there was none.

        Args:
            writer: who asks.
            last: the number of the last batch of that writer that was committed.
        """
        if self.committing is None:
            return None
        by, number, written = self.committing
        return written if by == writer and last is not None and last >= number else None


@dataclass(slots=True)
class Deletion:
    """Trials that are to be deleted, and what is known of attempts to; the arguments of `TrialStore.delete`."""

    trial_ids: Collection[str]
    numbers: Collection[int] | None
    ended: bool
    #: The numbers of those that an attempt was about to delete, by their keys.
    doomed: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Trial:
    """A trial within a batch.

    Attributes:
        key: see `key_of`.
        trial_id: its id.
        edit: its samples.
        info_bytes: what it takes without samples, of its head's bytes.
        outcome_bytes: what how it ended takes.
        writer: whose data log writes it.
        endpoint: of its orchestrator.
        owner: its account, as it is kept.
        end: whether it had ended before.
        changes: how often its row has changed with this batch.
        said: what the last write said of it, if one did.
        outcome: how it ended, if that was said.
        is_new: it is created.
        is_touched: something was written.
    """

    key: str
    trial_id: str
    edit: TrialEdit
    info_bytes: int
    outcome_bytes: int
    writer: int
    endpoint: str
    owner: str
    end: TrialEnd
    changes: int = 0
    said: TrialWrite | None = None
    params: bytes = b""
    outcome: bytes | None = None
    is_new: bool = False
    is_touched: bool = False

    def describe(self, write: TrialWrite) -> None:
        self.said = write
        self.params = write.params.SerializeToString(deterministic=True)
        self.endpoint = write.endpoint
        self.edit.head.describe(write)
        self._count(trial_bytes(write.trial_id, write.user_id, len(self.params), self.outcome_bytes))

    def end_with(self, write: OutcomeWrite) -> None:
        self._count(self.info_bytes + len(write.outcome) - self.outcome_bytes)
        self.outcome, self.outcome_bytes = write.outcome, len(write.outcome)

    def _count(self, info_bytes: int) -> None:
        self.edit.head.bytes += info_bytes - self.info_bytes
        self.info_bytes = info_bytes

    def row(self) -> TrialRow:
        head = self.edit.head
        return TrialRow(
            self.key, head.number, head.end, head.count, head.high_tick, self.edit.top_tick, head.state,
            self.edit.next_position, head.bytes, self.info_bytes, head.raw_bytes, self.writer, self.endpoint,
            head.attempt, self.outcome_bytes, self.owner, self.changes,
        )  # fmt: skip


class PostgresqlWriter:
    """Writes batches through a session. One thread at a time may use it.

    Args:
        session: whose transactions these are.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._codec = ChunkCodec(DEFAULT_LEVEL)
        #: What this process was before, too: what those had begun is this one's.
        self._numbers: set[int] = set()
        #: The writer and the number of its last batch, and open trials as that and those before have left them.
        self._last: tuple[int, int] | None = None
        self._remembered: dict[str, TrialRow] = {}

    def close(self) -> None:
        """Close the session; the next call opens another."""
        self._last = None
        self._remembered.clear()
        self._session.close()

    def write(self, writer: int, batch: Batch) -> Written:
        """Do a batch in one transaction, unless an attempt before has done it.

        Raises:
            WriterGoneError: nothing was written.
            TransientError: it may have been written; called again with the same batch, this finds out.
            CogmentError: see `database_errors`; nothing was written.
        """
        self._numbers.add(writer)
        try:
            written = self._write_unasked(writer, batch)
            creates = False
            while written is None:
                written = self._attempt(writer, batch, creates)
                creates = True
        except BaseException:
            self.close()
            raise
        return written

    def delete(self, deletion: Deletion) -> list[str]:
        """Delete trials in one transaction; return the ids of those that were deleted, by an attempt before or now.

        Raises:
            TransientError: some may have been deleted; called again with the same deletion, this finds out.
            CogmentError: see `database_errors`; nothing was deleted.
        """
        keys = {key_of(trial_id): trial_id for trial_id in deletion.trial_ids}
        try:
            found = {key: (number, TrialEnd(end)) for number, key, end in self._session.lock_ended(keys)}
            # An attempt before is either done as a whole or not at all.
            before = deletion.doomed
            is_done = bool(before) and all(found.get(key, (0,))[0] != number for key, number in before.items())
            if not is_done:
                deletion.doomed = {
                    key: number
                    for key, (number, end) in found.items()
                    if is_deleted(number, end, deletion.numbers, ended=deletion.ended)
                }
            if is_done or not deletion.doomed:
                self._session.roll_back()
            else:
                self._session.delete(list(deletion.doomed.values()))
        except BaseException:
            self.close()
            raise
        return [trial_id for key, trial_id in keys.items() if key in deletion.doomed]

    def merge(self, trial: int, after: int) -> int | None:
        """Make one chunk of the next small ones of a trial that has ended; return where to go on. None: all is done.

        Args:
            trial: its number.
            after: only chunks that begin behind this position.

        Raises:
            CogmentError: see `database_errors`. What was there, or the chunk in its place, is there.
        """
        try:
            begun = self._session.begin_merge(trial, after)
            run, next_after = next_run([] if begun is None else begun[1])
            if begun is None or len(run) < 2:
                self._session.roll_back()
                return next_after
            first, last = run[0].first_position, run[-1].first_position
            try:
                merged = self._codec.merge(self._session.run(trial, first, last), begun[0])
            except DataLossError as error:
                _log.error("%s; they stay as they are", error)
                self._session.roll_back()
                return last
            before = sum(counted_chunk(part.samples_count, part.raw_bytes, part.stored_bytes) for part in run)
            self._session.commit_merge(trial, merged, last, _counted(merged) - before)
        except BaseException:
            self.close()
            raise
        return last

    def _write_unasked(self, writer: int, batch: Batch) -> Written | None:
        """Write samples of remembered trials; None: the batch is another one, or somebody else has written meanwhile.

        What becomes of it is known without the chunks that are there, if each sample is later than those.
        """
        last, remembered = self._last, self._remembered
        if batch.committing is not None or last is None or last[0] != writer:
            return None
        by_trial = defaultdict[str, list[SampleWrite]](list)
        for write in batch.writes:
            if type(write) is not SampleWrite:
                return None
            by_trial[write.trial_id].append(write)
        keys = {trial_id: key_of(trial_id) for trial_id in by_trial}
        if len(keys) > _MOST_INSERTED or not remembered.keys() >= set(keys.values()):
            return None
        rows = {key: remembered[key] for key in keys.values()}
        begun = Begun(last[1] + 1, False, None, rows)
        step = _Transaction(_Unasked(), self._codec, writer, self._numbers, begun, keys)
        try:
            written = step.extend(by_trial)
            if written is None:
                step = _Transaction(_Unasked(), self._codec, writer, self._numbers, begun, keys)
                written = step.apply(batch.writes)
            batch.committing = writer, last[1] + 1, written
            self._session.write(writer, begun, step.added(), step.changes)
        except StaleError:
            batch.committing = None
            return None
        self._remember(writer, last[1] + 1, step)
        return written

    def _remember(self, writer: int, number: int, step: _Transaction) -> None:
        self._last = writer, number
        for row in step.rows():
            # Its place is that of one that was just used.
            self._remembered.pop(row.key, None)
            if row.ending == TrialEnd.OPEN:
                self._remembered[row.key] = row
        while len(self._remembered) > _MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def _attempt(self, writer: int, batch: Batch, creates: bool) -> Written | None:
        """Write a batch; None: it creates trials, which `creates` has to say."""
        keys = {trial_id: key_of(trial_id) for trial_id in dict.fromkeys(map(_trial_id_of, batch.writes))}
        said = {keys[write.trial_id] for write in batch.writes if type(write) is TrialWrite}
        if said and not creates:
            creates = bool(self._session.unknown(said))
        begun = self._session.begin(writer, set(keys.values()), creates=creates)
        last = None if begun.batch is None else begun.batch - 1
        done = batch.is_done(writer, last)
        if done is not None:
            self._session.roll_back()
            return done
        if begun.is_gone or begun.batch is None:
            raise WriterGoneError
        if not creates and not said <= begun.rows.keys():
            self._session.roll_back()
            return None
        step = _Transaction(self._session, self._codec, writer, self._numbers, begun, keys)
        written = step.apply(batch.writes)
        batch.committing = writer, begun.batch, written
        copies = len(written.trial_ids) > _MOST_INSERTED
        self._session.commit(step.added(), step.changes, copies=copies)
        self._remember(writer, begun.batch, step)
        return written


class Asked(Protocol):
    """What a transaction asks while it goes on."""

    def chunks(self, trial: int, first_tick: int, last_tick: int) -> list[ChunkRow]: ...
    def sessions(self) -> set[int]: ...


class _Unasked:
    """Nothing is asked."""

    def chunks(self, trial: int, first_tick: int, last_tick: int) -> list[ChunkRow]:
        raise StaleError

    def sessions(self) -> set[int]:
        raise StaleError


class _Transaction:
    """The writes of one transaction."""

    def __init__(
        self,
        session: Asked,
        codec: ChunkCodec,
        writer: int,
        former: Collection[int],
        begun: Begun,
        keys: Mapping[str, str],
    ) -> None:
        self._session = session
        self._codec = codec
        #: What chunks that were read count against a quota, by trial and first position.
        self._counted: dict[tuple[int, int], int] = {}
        self._writer = writer
        self._former = former
        self._last_number = begun.last_number
        self._keys = keys
        self._sessions: set[int] | None = None
        self._trials = {
            trial_id: self._known(trial_id, begun.rows[key]) for trial_id, key in keys.items() if key in begun.rows
        }

    def extend(self, writes: Mapping[str, Sequence[SampleWrite]]) -> Written | None:
        """Do what `apply` would with samples, by trial, that all follow; None: they do not, and this is of no use."""
        for trial_id, some in writes.items():
            trial = self._trials[trial_id]
            if not trial.edit.extend(some):
                return None
            trial.is_touched = True
        return self._finished(Written())

    def apply(self, writes: Sequence[Write]) -> Written:
        """Apply the writes; return what becomes of them."""
        written = Written()
        refused = written.refused
        current: str | None = None
        trial: _Trial | None = None
        for index, write in enumerate(writes):
            if write.trial_id != current:
                current = write.trial_id
                trial = self._trials.get(current)
            # The usual case is first: it decides how fast writing is.
            if trial is not None and type(write) is SampleWrite and write.attempt == trial.edit.head.attempt:
                reason = trial.edit.write(write)
            elif isinstance(write, TrialWrite):
                reason = self._describe(write, trial)
                trial = self._trials.get(write.trial_id)
                written.trials |= reason is None
            elif trial is None:
                reason = NO_SUCH_TRIAL.format(write.trial_id)
            elif (reason := replaced(write, trial.edit.head.attempt)) is not None:
                pass
            elif isinstance(write, SampleWrite):
                reason = trial.edit.write(write)
            elif isinstance(write, OutcomeWrite):
                trial.end_with(write)
                written.trials = True
            else:
                self._finish(write, trial)
            if reason is not None:
                refused[index] = reason
            elif trial is not None:
                trial.is_touched = True
        return self._finished(written)

    def _finished(self, written: Written) -> Written:
        touched = self._touched()
        written.trial_ids.update(trial.trial_id for trial in touched)
        written.trials |= any(trial.edit.head.end != trial.end for trial in touched)
        heads = (trial.edit.head for trial in touched if trial.edit.head.end != trial.end)
        written.ended.update(head.number for head in heads if head.end != TrialEnd.OPEN)
        return written

    def added(self) -> Iterator[ChunkRow]:
        """Make the new chunks, one after the other."""
        for trial in self._touched():
            for samples in trial.edit.added.in_chunks(_CHUNK_BYTES, sys.maxsize):
                yield self._chunk(trial.edit, samples)

    def changes(self) -> Changes:
        """Return what has to be written beside new chunks, which have to be there: their sizes count."""
        changed: list[tuple[int, ChunkRow]] = []
        removed: list[tuple[int, int]] = []
        touched = self._touched()
        for trial in touched:
            head = trial.edit.head
            for position in trial.edit.changed:
                left = trial.edit.chunk(position)
                head.bytes -= self._counted[head.number, position]
                if left.ticks:
                    changed.append((position, self._chunk(trial.edit, left)))
                else:
                    removed.append((head.number, position))
        old = [trial for trial in touched if not trial.is_new]
        return Changes(
            new=[_new(trial) for trial in touched if trial.is_new],
            rows=[trial.row() for trial in old],
            told=[
                (
                    trial.edit.head.number,
                    as_text(trial.said.user_id),
                    trial.params,
                    properties_text(trial.said.params.properties),
                    trial.said.logged,
                )
                for trial in old
                if trial.said is not None
            ],
            outcomes=[(trial.edit.head.number, trial.outcome) for trial in old if trial.outcome is not None],
            changed=changed,
            removed=removed,
            last_number=self._last_number if any(trial.is_new for trial in touched) else None,
        )

    def rows(self) -> list[TrialRow]:
        """Return what the trials that were written to are now."""
        return [trial.row() for trial in self._touched()]

    def _touched(self) -> list[_Trial]:
        return [trial for trial in self._trials.values() if trial.is_touched]

    def _known(self, trial_id: str, row: TrialRow) -> _Trial:
        head = Head(
            row.number, TrialEnd(row.ending), row.samples_count, row.high_tick, row.state, row.bytes, row.raw_bytes,
            row.attempt,
        )  # fmt: skip
        load = partial(self._load, row.number, trial_id)
        edit = TrialEdit(head, row.top_tick, row.next_position, load)
        writer = self._writer if row.writer in self._former else row.writer
        trial = _Trial(
            row.key, trial_id, edit, row.info_bytes, row.outcome_bytes, writer, row.endpoint, row.owner, head.end
        )
        trial.changes = row.changes + 1
        return trial

    def _load(
        self, number: int, trial_id: str, first_tick: int, last_tick: int
    ) -> Iterable[tuple[int, Sequence[ChunkSample], Sequence[int]]]:
        for _, waiting, chunk in self._session.chunks(number, first_tick, last_tick):
            self._counted[number, chunk.first_position] = _counted(chunk)
            yield chunk.first_position, decode(chunk, trial_id), waiting

    def _chunk(self, edit: TrialEdit, samples: NewSamples) -> ChunkRow:
        chunk = self._codec.encode(samples)
        edit.head.bytes += _counted(chunk)
        return ChunkRow(edit.head.number, edit.waiting(samples.ticks), chunk)

    def _describe(self, write: TrialWrite, trial: _Trial | None) -> str | None:
        if trial is None:
            if (reason := absent(write)) is not None:
                return reason
            assert self._last_number is not None
            self._last_number += 1
            edit = TrialEdit(Head(self._last_number), NO_TICK, 1, lambda _first, _last: ())
            whose = self._writer, "", as_text(write.owner)
            trial = _Trial(self._keys[write.trial_id], write.trial_id, edit, 0, 0, *whose, TrialEnd.OPEN, is_new=True)
            self._trials[write.trial_id] = trial
        elif (reason := taken(write, trial.edit.head.end, trial.endpoint, trial.edit.head.attempt)) is not None:
            return reason
        elif write.owner and as_text(write.owner) != trial.owner:
            # Within a process `Owners` sees to it; another one may have created the trial meanwhile.
            return f"trial {write.trial_id!r}: it belongs to somebody else"
        trial.describe(write)
        # Whose data log it is, sees to it that it ends.
        trial.writer = _NOBODY if write.endpoint == RELEASED else self._writer
        return None

    def _finish(self, write: EndWrite, trial: _Trial) -> None:
        if write.end is TrialEnd.ABNORMAL and trial.writer != self._writer:
            # Its data log is gone from here, and may be elsewhere.
            if self._sessions is None:
                self._sessions = self._session.sessions()
            if trial.writer in self._sessions:
                return
        trial.edit.head.finish(write)


def next_run(parts: Sequence[Part]) -> tuple[list[Part], int | None]:
    """Return the first chunks that can be one, and the position behind which to go on; none, and None: all is done."""
    run: list[Part] = []
    raw = count = 0
    for part in parts:
        fits = raw + part.raw_bytes <= _CHUNK_BYTES and count + part.samples_count <= _CHUNK_SAMPLES
        follows = bool(run) and not part.is_waiting and run[-1].last_tick < part.first_tick
        if follows and fits:
            run.append(part)
        elif len(run) > 1:
            break
        else:
            run = [] if part.is_waiting else [part]
            raw = count = 0
        raw += part.raw_bytes
        count += part.samples_count
    if len(run) > 1:
        return run, run[-1].first_position
    return [], None


def _counted(chunk: Chunk) -> int:
    """Return what a chunk counts against its owner's quota."""
    return counted_chunk(chunk.samples_count, chunk.raw_bytes, len(chunk.data))


def _new(trial: _Trial) -> NewTrial:
    said = trial.said
    assert said is not None
    kept = as_text(trial.trial_id)
    return NewTrial(
        row=trial.row(),
        long_id=None if kept == trial.key else kept,
        user_id=as_text(said.user_id),
        params=trial.params,
        properties=properties_text(said.params.properties),
        logged=said.logged,
        owner=trial.owner,
        outcome=trial.outcome or b"",
    )
