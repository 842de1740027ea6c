"""The intake of samples from data logs, over a call or as objects of this process, by the same streams."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from trio_cogment.access import Quotas
from trio_cogment.api.common_pb2 import EndOfTrial, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    InvalidArgumentError,
    QuotaError,
    ResourceExhaustedError,
    StorageFailedError,
    UnavailableError,
)
from trio_cogment.base.shared_message import SharedSample
from trio_cogment.base.taking_up import RESUME_RELEASED, Past
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import turns_of_run
from trio_cogment.servers.datastore._conversion import TrialConverter
from trio_cogment.servers.datastore._group_commit import GroupCommit, WriteStream
from trio_cogment.servers.datastore._leases import Leases
from trio_cogment.servers.datastore._owners import Owners
from trio_cogment.servers.datastore._past import read_past
from trio_cogment.servers.datastore.storage import (
    ELSEWHERE,
    RELEASED,
    EndWrite,
    OutcomeWrite,
    TrialEnd,
    TrialStore,
    TrialWrite,
    Write,
)

_log = logging.getLogger(__name__)

_INFO = "info"
_ENDED = TrialState.ENDED
#: The full conversion of a sample costs a unit of `budget.turn_order` for this many actors, whatever they did.
_ACTORS_PER_UNIT = 128
#: After this many samples that need not wait, others get a turn: less than a millisecond.
_SAMPLES_PER_TURN = 64
#: It is in every description of its trial.
_MAX_OUTCOME_BYTES = 64 * 1024


class IntakeStream:
    """Takes the samples of one trial. It has the interface of an orchestrator's `SampleStream`.

    Attributes:
        writes: where its samples are written.
        ended: the trial has ended, and that is durable.
        lease_seconds: see `SampleStream`.
    """

    lease_seconds: float | None = None

    def __init__(
        self,
        trial_id: str,
        params: TrialParams,
        next_tick: int,
        writer: GroupCommit,
        writes: WriteStream,
        attempt: int = 0,
    ) -> None:
        self._trial_id = trial_id
        self._writer = writer
        self._attempt = attempt
        self._converter = TrialConverter(trial_id, params, next_tick=next_tick, attempt=attempt)
        self._turns = turns_of_run()
        self._until_turn = _SAMPLES_PER_TURN
        self._units = 1 + len(params.actors) // _ACTORS_PER_UNIT
        self._never_says = any(name.strip().lower() == _INFO for name in params.datalog.exclude_fields)
        self.writes = writes
        #: Not among `writes`: the data log counts those.
        self._outcomes = writer.stream(purse=writes.purse)
        writes.converter = self._converter
        #: Takes a shared sample, as `write_nowait` does. All of a commit are converted together, which takes a fraction
        #: of the time, but where a quota counts what is stored.
        self.write_shared_nowait: Callable[[SharedSample], bool] = (
            writes.put_nowait if writes.purse is None else self._write_counted
        )
        self.ended = False

    @property
    def on_confirmed(self) -> Callable[[], None] | None:
        """Called whenever more samples are durable; must not raise or wait."""
        return self.writes.on_durable

    @on_confirmed.setter
    def on_confirmed(self, called: Callable[[], None] | None) -> None:
        self.writes.on_durable = called

    @property
    def unconfirmed(self) -> int:
        """How many of the samples taken are not durable."""
        return self.writes.taken - self.writes.durable

    async def write(self, sample: DatalogSample) -> None:
        """Take a sample, which is only read; wait while too much is under way.

        Raises:
            InvalidArgumentError: the sample is invalid. All before it are durable.
            CogmentError: an earlier one could not be stored.
        """
        try:
            write = self._converter.write_by_template(sample)
            if write is None:
                await self._turns.turn(Lane.OTHERS, self._units)
                for write in self._converter.writing(sample):
                    if write is None:  # a large sample: other tasks get a turn between its steps
                        await trio.lowlevel.checkpoint()
        except InvalidArgumentError:
            # The sender counts confirmations to find out which sample was invalid.
            await self.flush()
            raise
        assert write is not None
        self._until_turn -= 1
        if self._until_turn:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:  # what was taken is committed, and read, while more comes
            self._until_turn = _SAMPLES_PER_TURN
            await trio.lowlevel.checkpoint()
        if not self.writes.put_nowait(write):
            await self._put(write)
        if write.state == _ENDED and sample.info.HasField("end"):
            await self._put_outcome(sample.info.end)

    def write_nowait(self, sample: DatalogSample) -> bool:
        """Take a sample, which is only read, if that needs no waiting; False: it has not been taken, use `write`."""
        # How the trial ended is a write of its own, and is waited for.
        if not self.writes.has_room or (sample.HasField(_INFO) and sample.info.HasField("end")):
            return False
        try:
            write = self._converter.write_at_once(sample)
        except InvalidArgumentError:
            return False  # `write` says so, in its turn
        return write is not None and self.writes.put_nowait(write)

    def write_encoded_nowait(self, data: bytes) -> bool:
        """Take a serialized sample, which may be any bytes, as `write_nowait` does, if it is like an earlier one."""
        write = self._converter.write_encoded(data)
        # Where it is not taken it is converted again: nothing that follows depends on how often.
        return write is not None and self.writes.put_nowait(write)

    def _write_counted(self, sample: SharedSample) -> bool:
        if not self.writes.has_room:
            return False
        try:
            write = self._converter.write_shared(sample)
        except InvalidArgumentError:
            return False  # `write` says so, in its turn
        return write is not None and self.writes.put_nowait(write)

    async def _put(self, write: Write) -> None:
        try:
            await self.writes.put(write)
        except QuotaError:
            await self.flush()  # as for an invalid sample
            raise
        except CogmentError as error:
            raise _for_data_log(error) from error

    async def _put_outcome(self, end: EndOfTrial) -> None:
        outcome = end.SerializeToString()
        if len(outcome) > _MAX_OUTCOME_BYTES:
            _log.warning("trial %s: how it ended is not kept: it takes %d bytes", self._trial_id, len(outcome))
            return
        try:
            # Right behind its sample: the two are durable together.
            await self._outcomes.put(OutcomeWrite(self._trial_id, outcome, self._attempt))
        except QuotaError:
            await self.flush()
            raise
        except CogmentError as error:
            raise _for_data_log(error) from error

    async def flush(self) -> None:
        """Return when all samples are durable.

        Raises:
            CogmentError: one could not be stored.
        """
        try:
            await self.writes.flush()
            await self._outcomes.flush()
        except CogmentError as error:
            raise _for_data_log(error) from error
        self.ended = self._converter.saw_end

    async def complete(self) -> None:
        """Take note that there are no more samples; return when all are durable.

        Raises:
            CogmentError: one could not be stored.
        """
        await self.flush()
        if not self.ended and (self._never_says or self._converter.info_missing):
            # Without `info` no sample says that the trial has ended: the end of the stream does.
            try:
                await self._writer.write(EndWrite(self._trial_id, TrialEnd.ENDED, self._attempt))
            except CogmentError as error:
                raise _for_data_log(error) from error
            self.ended = True

    async def progress(self, known: int) -> bool:
        """Wait until more than `known` samples are durable; False: there will be no more."""
        try:
            await self.writes.progress(known)
        except CogmentError:
            return False
        return True


class Intake:
    """Opens a stream for each data log. It has the interface of an orchestrator's `SampleSink`.

    An orchestrator of this process may give it samples that are no messages yet (`takes_shared`): most of what a
    message is for is done again for what is stored.

    Args:
        store: tells what is stored of a trial already.
        writer: where everything is written.
        leases: learn which trials have a stream.
        owners: see to it that nobody writes over somebody else's trial.
        most_actors: of a trial.
        max_unconfirmed: how many samples of a stream of `open` may not be durable.
        owner: whose trials are written; empty: nobody's.
        quotas: of the owner.
        endpoint: of the orchestrator whose trials are written; empty: that is not known.
        resumes: that one is of this process, and goes on with interrupted trials.
    """

    takes_shared = True

    def __init__(
        self,
        store: TrialStore,
        writer: GroupCommit,
        leases: Leases,
        owners: Owners,
        most_actors: int,
        max_unconfirmed: int | None = None,
        owner: str = "",
        quotas: Quotas | None = None,
        endpoint: str = "",
        *,
        resumes: bool = False,
    ) -> None:
        #: Which run of its one trial it writes; 0: the next one, which the first stream begins; None: nobody counts.
        self._attempt: int | None = None
        self._store = store
        self._owners = owners
        self._owner = owner
        self._quotas = quotas or Quotas()
        self._endpoint = endpoint
        self._resumes = resumes
        self._writer = writer
        self._leases = leases
        self._most_actors = most_actors
        self._max_unconfirmed = max_unconfirmed

    def reached_at(self, endpoint: str) -> None:
        """Say where the orchestrator is reached whose trials begin from now on: that is known only when it serves."""
        self._endpoint = endpoint

    def owned_by(self, owner: str, quotas: Quotas, endpoint: str = "") -> Intake:
        """Return the intake of the trials of an account, with its quotas, that are run at an endpoint."""
        limits = self._most_actors, self._max_unconfirmed
        where = endpoint or self._endpoint
        return Intake(
            self._store, self._writer, self._leases, self._owners, *limits, owner, quotas, where, resumes=self._resumes
        )

    def counted(self, attempt: int) -> Intake:
        """Return the intake of one trial, for an attempt that the store has, or with 0 for the next one.

        What is written by another attempt meanwhile is refused, and so is what this one writes once there is a later
        one.
        """
        counted = self.owned_by(self._owner, self._quotas)
        counted._attempt = attempt
        return counted

    async def release(self, trial_id: str) -> None:
        """Hand the one trial over: its orchestrator runs it no more, and whoever goes on with trials may take it over.

        Raises:
            FailedPreconditionError: another attempt has it.
            CogmentError: of the storage.
        """
        trial = await self._store.trial(trial_id)
        if trial is not None and trial.end is TrialEnd.OPEN and self._attempt:
            params = TrialParams()
            params.CopyFrom(trial.params)
            params.properties[RESUME_RELEASED] = str(self._attempt)
            about = trial_id, trial.user_id, params, True, trial.owner, RELEASED
            await self._writer.write(TrialWrite(*about, self._attempt))
            self._leases.changes.value += 1

    @property
    def counts_attempts(self) -> bool:
        """Whether what it writes is of an attempt, so that the trial can be handed over."""
        return self._attempt is not None

    @property
    def attempt(self) -> int:
        """The number of the attempt that it writes, once a stream has been opened; 0: of none."""
        return self._attempt or 0

    @property
    def lease_seconds(self) -> float:
        """How long nobody else takes its trial over after the stream has broken."""
        return self._leases.lease_seconds

    async def _check_unused(self, trial_id: str) -> None:
        """Refuse to begin an interrupted trial anew where it goes on: what is stored of it would be deleted."""
        if self._attempt != 0 or not (self._resumes or self._endpoint.startswith(ELSEWHERE)):
            return
        try:
            known = await self._store.trial(trial_id)
        except CogmentError as error:
            raise _for_data_log(error) from error
        if known is not None and known.end is TrialEnd.OPEN and known.logged and known.attempt:
            raise AlreadyExistsError(
                f"trial {trial_id!r}: its id is taken by an interrupted trial that goes on by itself"
            )

    @asynccontextmanager
    async def _stream(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[IntakeStream]:
        check_actors(params, self._most_actors)
        copied = TrialParams()
        copied.CopyFrom(params)
        stream: IntakeStream | None = None
        trouble = ""
        await self._check_unused(trial_id)
        self._leases.enter(trial_id)
        try:
            async with AsyncExitStack() as held:
                try:
                    counting = self._writer.accounts.writing(self._owner, self._quotas.stored_bytes)
                    purse = await held.enter_async_context(counting)
                    async with self._owners.writing(trial_id, self._owner) as known:
                        attempt = self._attempt or 0
                        if self._attempt == 0:
                            attempt = 1 + (0 if known is None else known.attempt)
                        said = TrialWrite(trial_id, user_id, copied, True, self._owner, self._endpoint, attempt)
                        writes: list[Write] = [said]
                        if known is not None and known.end == TrialEnd.ABNORMAL:
                            writes.append(EndWrite(trial_id, TrialEnd.OPEN, attempt))
                        await self._writer.write(*writes, purse=purse)
                        if self._attempt is not None:
                            self._attempt = attempt
                except CogmentError as error:
                    raise _for_data_log(error) from error
                next_tick = 0 if known is None else known.samples_count
                taking = self._writer.stream(self._max_unconfirmed, purse)
                self._leases.writing(trial_id, taking)
                stream = IntakeStream(trial_id, copied, next_tick, self._writer, taking, attempt)
                if attempt and self._resumes and not getattr(self._store, "exclusive", False):
                    # Cut off from a storage that others share, they count this process as gone before it notices.
                    stream.lease_seconds = 0.0
                yield stream
        except StorageFailedError as error:
            trouble = str(error)
            raise
        finally:
            if stream is not None and stream.writes.failure is not None:
                trouble = trouble or _trouble_in(stream.writes.failure)
            self._leases.leave(trial_id, ended=stream is not None and stream.ended, trouble=trouble)

    async def past(
        self, trial_id: str, tick_id: int | None, may_read: Callable[[str], bool] | None = None
    ) -> tuple[TrialParams, Past]:
        """Return a stored trial's parameters, and what another one needs that goes on with it.

        Args:
            trial_id: of the stored trial.
            tick_id: with which the other one begins; None: the last one that is stored.
            may_read: tells whether whoever asks may read what an account owns; None: all of it.

        Raises:
            NotFoundError: there is no such trial or tick.
            PermissionDeniedError: it belongs to somebody else.
            DataLossError: a part of the past is not stored.
        """
        return await read_past(self._store, trial_id, tick_id, may_read)

    @asynccontextmanager
    async def open(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[IntakeStream]:
        """Store a trial, or its new parameters, and take its samples for the time of the block.

        The block is left at once when a sample cannot be stored.

        Args:
            trial_id: of the trial.
            user_id: of the user who started it.
            params: of the trial; copied.

        Raises:
            AlreadyExistsError: the id is taken by a trial of another orchestrator.
            CogmentError: something could not be stored.
        """
        async with self._stream(trial_id, user_id, params) as stream:
            with trio.CancelScope() as scope:
                stream.writes.on_failure = scope.cancel
                yield stream
            if scope.cancelled_caught and stream.writes.failure is not None:
                raise _for_data_log(stream.writes.failure)


def check_actors(params: TrialParams, most: int) -> None:
    """Refuse the parameters of a trial with too many actors: each of its samples costs something for all of them.

    Raises:
        InvalidArgumentError: its text names the limit.
    """
    if len(params.actors) > most:
        text = f"trial_params.actors: expected at most {most}, got {len(params.actors)}; max_trial_actors is {most}"
        raise InvalidArgumentError(text)


def _trouble_in(error: CogmentError) -> str:
    """Return why a sample could not be stored that will be sent again."""
    found = _for_data_log(error)
    return str(found) if isinstance(found, StorageFailedError) else ""


def _for_data_log(error: CogmentError) -> CogmentError:
    """Return the error for the data log. When the storage is full, or fails, the sample may be sent again."""
    if isinstance(error, ResourceExhaustedError | UnavailableError) and not isinstance(error, QuotaError):
        return StorageFailedError(str(error))
    return error
