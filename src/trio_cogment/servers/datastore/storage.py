"""The interface of storages for trials; there is one in memory and one in SQLite.

`trio_cogment.testing.check_trial_store` is the conformance kit of this interface. The classes are protocols: a storage
need not inherit from them. Nothing here assumes that the storage has one process only: another may write to it at
any time.

- **Writes** come in batches, and each batch is one atomic and durable step: when `apply` returns, all of it is there,
  also after the power went (as far as the storage keeps anything); when it raises, nothing of it is. Ordering within a
  batch is kept.
- **A sample** belongs to a tick of a trial, and a trial has at most one for each. What happens to a second one is in
  `WriteKind`.
- **Positions** order the samples of a trial by their arrival: each new sample gets a higher one than all before it, and
  keeps it when another is merged into it. They may have gaps. A reader that pages by position therefore misses nothing.
- **Attempts** number the runs of a trial, from 1: who goes on with a trial whose orchestrator is gone says the next
  number, and from then on what says a lower one is refused, so that a trial never has two that write it. A write that
  says 0 is of nobody who counts: by hand, or of a data log elsewhere that says none.
- **Numbers** order trials by their creation; they are never used again, so a page's handle stays valid whatever is
  deleted.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import DataLossError
from trio_cogment.servers.datastore._chunk_layouts import SampleData, size_of


class TrialEnd(enum.IntEnum):
    """Whether a trial gets more samples; the numbers are stored."""

    OPEN = 0
    ENDED = 1
    #: Its orchestrator went away without a last sample.
    ABNORMAL = 2


#: The endpoint of an open trial that its orchestrator has handed over: whoever goes on with trials may take it over.
RELEASED = "released:"
#: Begins the endpoint of a trial whose attempts are counted for an orchestrator in another process.
ELSEWHERE = "elsewhere:"


def reached_at(endpoint: str) -> str:
    """Return where the orchestrator of a trial is reached, by what is kept of that; empty: nowhere, as far as known."""
    return "" if endpoint == RELEASED else endpoint.removeprefix(ELSEWHERE)


class WriteKind(enum.IntEnum):
    """What is done with a sample whose tick has one already."""

    #: From a data log, which may deliver twice: the same timestamp means the same sample, and nothing is changed.
    #: Another timestamp means that the trial is run again under its id: the old sample and those of all later ticks
    #: are removed. A tick that has only LATE samples yet gets the new sample with these merged into it, at a position
    #: of its own.
    LOGGED = 0
    #: Written by hand: takes the place of the old one, with a position of its own.
    STORED = 1
    #: An out-of-sync sample: merged into the one of its tick by `_merging.merge_late`, and never changes the trial's
    #: state. Where there is none it waits as one of its own for the one to come.
    LATE = 2


class TrialWrite(NamedTuple):
    """Create a trial, or change its user and its parameters; its samples and its number stay.

    It is refused while the id is taken: the trial is open, and another orchestrator's data log writes it. What its
    attempt may be is in `_write_rules.ATTEMPTS`.
    """

    trial_id: str
    user_id: str
    params: TrialParams
    #: A data log writes it. If its data log goes away the datastore ends it.
    logged: bool
    #: The account that it belongs to, which stays what it was when the trial was created.
    owner: str = ""
    #: Where the orchestrator is reached that runs it; empty: that is not known, and the id is nobody's. `RELEASED`: by
    #: none any more. It begins with `ELSEWHERE` if that one is in another process, and its attempts are counted.
    endpoint: str = ""
    #: See the head of this module.
    attempt: int = 0
    #: It goes on with a trial that has not ended, of whichever orchestrator it is; the trial is open again.
    takes_over: bool = False


class SampleWrite(NamedTuple):
    """Add a sample to a trial.

    Unless it is LATE: ENDED ends the trial, even if the sample is there already; another state in a new sample, no
    lower than all others that are not LATE, opens it again.
    """

    trial_id: str
    tick_id: int
    #: Nanoseconds since the epoch.
    timestamp: int
    #: A `TrialState`.
    state: int
    #: A serialized `StoredTrialSample`; its parts only for a storage that `takes_parts`.
    data: SampleData
    kind: WriteKind
    #: See the head of this module.
    attempt: int = 0


class EndWrite(NamedTuple):
    """Say that no more samples of an open trial are expected, or with OPEN that they are again; its samples stay.

    A trial that has ended keeps the end it has.
    """

    trial_id: str
    end: TrialEnd
    #: See the head of this module.
    attempt: int = 0


class OutcomeWrite(NamedTuple):
    """Say how a trial ended; it takes the place of what was said before. It changes nothing else about the trial."""

    trial_id: str
    #: A serialized `EndOfTrial`.
    outcome: bytes
    #: See the head of this module.
    attempt: int = 0


Write = TrialWrite | SampleWrite | EndWrite | OutcomeWrite


class ReplacedAttempt(str):
    """Why a write was refused: another attempt has taken the trial over, or nobody knows of this one."""

    __slots__ = ()


#: What a trial, and each of its samples, counts beside its bytes against the quota of its owner.
ROW_BYTES = 128


def trial_bytes(trial_id: str, user_id: str, params_bytes: int, outcome_bytes: int) -> int:
    """Return what a trial without its samples counts against its owner's quota."""
    return ROW_BYTES + len(trial_id.encode()) + len(user_id.encode()) + params_bytes + outcome_bytes


def counted_bytes(write: Write) -> int:
    """Return what a write adds at most to what counts against the quota of its trial's owner."""
    if type(write) is SampleWrite:
        return ROW_BYTES + size_of(write.data)
    if type(write) is TrialWrite:
        return trial_bytes(write.trial_id, write.user_id, write.params.ByteSize(), 0)
    return len(write.outcome) if type(write) is OutcomeWrite else 0


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """What is known of a trial beside its samples.

    Attributes:
        number: its place in the order of creation; above 0.
        trial_id: its id; deleted and created again, an id gets a new number.
        user_id: of the user who started it.
        params: its parameters; shared, not to be changed.
        samples_count: how many ticks have a sample, the evicted ones included.
        last_state: of the sample with the highest tick that was not LATE; UNKNOWN without one, ENDED once it has ended,
            in whichever way.
        end: whether more samples are to come.
        logged: see `TrialWrite`.
        evicted: its samples are gone, to make room.
        outcome: see `OutcomeWrite`; empty if nothing was said.
        owner: the account that it belongs to; empty: nobody's.
        endpoint: of the orchestrator that runs it, or ran it last, as in `TrialWrite`; empty: that is not known.
        attempt: which run of the trial this is, from 1; 0: it is written by hand, or by a data log elsewhere that does
            not count.
        stored_bytes: what it takes in the storage, as `TrialStore.stored_bytes` counts it; not compared.
        raw_bytes: what its samples had as serialized messages; not compared.
    """

    number: int
    trial_id: str
    user_id: str
    params: TrialParams
    samples_count: int
    last_state: int
    end: TrialEnd
    logged: bool
    evicted: bool = False
    outcome: bytes = b""
    owner: str = ""
    endpoint: str = ""
    attempt: int = 0
    stored_bytes: int = field(default=0, compare=False)
    raw_bytes: int = field(default=0, compare=False)


class StoredSample(NamedTuple):
    """A sample as it is stored."""

    position: int
    tick_id: int
    #: A serialized `StoredTrialSample`.
    data: bytes


class DamagedSamplesError(DataLossError):
    """Samples are damaged; those before and behind them can be read.

    Args:
        message: which trial and ticks, and what is wrong.
        before: what was asked for up to there.
        last_position: of the damaged ones; reading goes on behind it.

    Attributes:
        before: see above.
        last_position: see above.
    """

    def __init__(self, message: str, before: Sequence[StoredSample], last_position: int) -> None:
        super().__init__(message)
        self.before = before
        self.last_position = last_position


class Watch(Protocol):
    """Tells when there may be something new; missing nothing, at the price of false alarms."""

    async def changed(self) -> None:
        """Return once something was written since the watch was opened, or since this returned last."""


class TrialStore(Protocol):
    """A storage of trials. All of it may raise what is under Raises; after `Cancelled` a write may or may not be done.

    Raises:
        ResourceExhaustedError: there is no room; nothing was written. Later there may be.
        UnavailableError: the storage failed or is away; nothing was written, and the next call tries again.
        CogmentError: anything else a reader or writer should be told.
    """

    async def apply(self, writes: Sequence[Write]) -> Mapping[int, str]:
        """Do all of this in one step: atomic, durable, in order.

        Returns:
            Which writes were refused, by their index, and why: what is for a trial that is not there, a tick
            or timestamp of 2**63 or more, something LATE that is not a serialized `StoredTrialSample`, a trial whose
            id is taken, what is of another attempt (a `ReplacedAttempt`). The others are done.

        A storage with an attribute `takes_parts` that is True is given samples as `Parts`, where they are known; it
        looks at `data` with `size_of` and `joined` of `servers.datastore._chunk_layouts`.
        """

    async def trial(self, trial_id: str) -> StoredTrial | None:
        """Return what is known of a trial; None: there is none."""

    async def trials(
        self, *, after: int, limit: int, ids: Collection[str] | None = None, properties: Mapping[str, str] | None = None
    ) -> list[StoredTrial]:
        """Return trials in the order of their creation.

        Args:
            after: only those with a higher number.
            limit: the maximum number, 1 or more.
            ids: only these; None: all.
            properties: only trials whose parameters have all of these, with equal values.
        """

    async def open_logged(self) -> list[str]:
        """Return the ids of the trials that a data log writes and that are open."""

    async def stored_bytes(self, owner: str) -> int:
        """Return what counts against the quota of an account: its trials and all that is stored of them, at present.

        It is the sum of `trial_bytes` of these trials, and of the data of their samples with `ROW_BYTES` for each; a
        storage that needs fewer bytes for samples counts what it needs.
        """

    async def samples(self, number: int, *, after: int, limit: int, max_bytes: int) -> list[StoredSample]:
        """Return samples of a trial, by position; fewer than both limits allow are all there are.

        Args:
            number: of the trial, so that one that was deleted and created again is not taken for the other.
            after: only those with a higher position; 0: from the first.
            limit: the maximum number, 1 or more.
            max_bytes: no further ones once their data has this many bytes; the first comes whatever its size.

        Raises:
            NotFoundError: there is no such trial (any more).
            DamagedSamplesError: some of these are damaged.
            DataLossError: some of these were evicted. A reader that had read all of those gets what came since.
        """

    async def delete(
        self, trial_ids: Collection[str], *, numbers: Collection[int] | None = None, ended: bool = False
    ) -> list[str]:
        """Delete trials and their samples in one step; return the ids of those that were deleted.

        Args:
            trial_ids: which; those that are not there are passed over.
            numbers: only trials that have one of these numbers, so that one that was created meanwhile stays.
            ended: only trials that have ended, so that one that was taken up meanwhile stays.
        """

    def watch(self, trial_id: str | None = None) -> AbstractAsyncContextManager[Watch]:
        """Watch a trial (its samples, its end, its deletion), or with None the creation and the ends of all trials."""
