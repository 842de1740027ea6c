"""Trials that go on: those whose orchestrator is gone are taken over, once, and started as another attempt.

A trial is taken over in the datastore, which compares and sets the number of its attempt in one transaction: of several
orchestrators that find the same trial, one has it, and what the attempt before still writes is refused. Then its past
is read, and it starts at its last stored tick, under its own id; see `docs/resuming.md`.

Each step may fail, or be the last one before the process dies. Before a trial is taken over nothing has changed; after
that it is open, and whoever looks next finds it again. So a trial is never in two hands, and not in none for long.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from trio_cogment.access import Quotas
from trio_cogment.api.attempts_pb2 import LeftTrial
from trio_cogment.api.common_pb2 import EndOfTrial, TrialParams, TrialState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import (
    CogmentError,
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    StatusCode,
    status_of,
)
from trio_cogment.base.outcome import EndCause, TrialOutcome
from trio_cogment.base.taking_up import (
    RESUME_ATTEMPT,
    RESUME_OWNER,
    RESUME_QUOTAS,
    RESUME_REACH,
    RESUME_RUN,
    RESUME_TICK,
    branch_of,
    broken_off,
    why_not,
)
from trio_cogment.servers.datastore import Datastore, StoredTrial, TrialEnd
from trio_cogment.servers.orchestrator import Orchestrator

_log = logging.getLogger(__name__)

#: How long after a failure of the storage, or a start that found nobody.
_RETRY_SECONDS: Final = 1.0
#: A datastore that has told of trials for so long was there: that it is away is news.
_BACK_SECONDS: Final = 60.0
#: How long a release may take when this process stops.
_RELEASE_SECONDS: Final = 2.0
#: Why a start fails that may succeed some time later.
_MAY_PASS: Final = (StatusCode.UNAVAILABLE, StatusCode.FAILED_PRECONDITION, StatusCode.RESOURCE_EXHAUSTED)
#: This many trials are read and started at a time.
_AT_ONCE: Final = 8


class Candidate(enum.Enum):
    """A stored trial, seen by an orchestrator that goes on with trials."""

    #: It runs here, or its last samples are on their way.
    HERE = enum.auto()
    #: It has ended in good order.
    OVER = enum.auto()
    #: Nobody counts its attempts: it is written by hand, or by an orchestrator elsewhere.
    UNCOUNTED = enum.auto()
    #: Whoever has started it knows when it goes on, and claims it.
    OWNED = enum.auto()
    #: As many attempts as it may have, one after the other, have broken off.
    SPENT = enum.auto()
    #: Its orchestrator is gone.
    LEFT = enum.auto()


class Step(enum.Enum):
    """What is done about a candidate."""

    LEAVE = enum.auto()
    TAKE_OVER = enum.auto()
    END = enum.auto()


class Notice(enum.Enum):
    """How a trial was found."""

    #: It is certain that nobody runs it.
    LEFT_OPEN = enum.auto()
    #: Its data log has not come back in time, and it is about to be ended.
    ABANDONED = enum.auto()


#: What is done, by what a trial is and how it was found; to leave an abandoned trial is to let it end.
STEPS: Final[dict[tuple[Candidate, Notice], Step]] = {
    (Candidate.HERE, Notice.LEFT_OPEN): Step.LEAVE,
    (Candidate.HERE, Notice.ABANDONED): Step.LEAVE,
    (Candidate.OVER, Notice.LEFT_OPEN): Step.LEAVE,
    (Candidate.OVER, Notice.ABANDONED): Step.LEAVE,
    (Candidate.UNCOUNTED, Notice.LEFT_OPEN): Step.LEAVE,
    (Candidate.UNCOUNTED, Notice.ABANDONED): Step.LEAVE,
    (Candidate.OWNED, Notice.LEFT_OPEN): Step.LEAVE,
    (Candidate.OWNED, Notice.ABANDONED): Step.LEAVE,
    (Candidate.SPENT, Notice.LEFT_OPEN): Step.END,
    (Candidate.SPENT, Notice.ABANDONED): Step.LEAVE,
    (Candidate.LEFT, Notice.LEFT_OPEN): Step.TAKE_OVER,
    (Candidate.LEFT, Notice.ABANDONED): Step.TAKE_OVER,
}


def candidate(trial: StoredTrial, *, runs_here: bool, most_attempts: int) -> Candidate:
    """Return what a stored trial is to an orchestrator that goes on with trials."""
    if runs_here:
        return Candidate.HERE
    if trial.end is TrialEnd.ENDED:
        return Candidate.OVER
    if not trial.attempt or not trial.logged:
        return Candidate.UNCOUNTED
    if RESUME_OWNER in trial.params.properties:
        return Candidate.OWNED
    spent = broken_off(trial.attempt, trial.params.properties) >= most_attempts
    return Candidate.SPENT if spent else Candidate.LEFT


def _nothing(_trial_id: str, _params: TrialParams) -> None:
    pass


class DatastoreElsewhere:
    """A trial datastore in another process, as `Resuming` has it: it does there what a `Datastore` does here.

    A trial whose data log has not come back is released there before it is ended, and told of as any other that nobody
    runs: `on_abandoned` has nothing to do.

    Args:
        orchestrator: calls it, at its `resumes_at`.
    """

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator

    async def check(self) -> None:
        """Learn that its trials can go on.

        Raises:
            FailedPreconditionError: they cannot: it does not count attempts.
            CogmentError: it cannot be reached, or lets nobody in.
        """
        await (await self._orchestrator.attempts_elsewhere()).check()

    def on_abandoned(self, _take_up: Callable[[StoredTrial], Awaitable[bool]] | None) -> None:
        """Do nothing, see above."""

    async def tell_left(self, endpoint: str, found: Callable[[StoredTrial], None]) -> None:
        """See `Datastore.tell_left`; it returns if the datastore ends the call."""

        def told(left: LeftTrial) -> None:
            state, end = TrialState.UNKNOWN, TrialEnd.OPEN
            about = left.trial_id, left.user_id, left.params, left.samples_count, state, end, True
            found(StoredTrial(0, *about, owner=left.owner, attempt=left.attempt))

        await (await self._orchestrator.attempts_elsewhere()).watch_left(endpoint, told)

    async def take_over(self, trial: StoredTrial, endpoint: str) -> int | None:
        """See `Datastore.take_over`."""
        attempts = await self._orchestrator.attempts_elsewhere()
        return await attempts.take_over(trial.trial_id, trial.attempt, endpoint) or None

    async def give_up(self, trial_id: str, attempt: int, end: EndOfTrial) -> None:
        """See `Datastore.give_up`."""
        await (await self._orchestrator.attempts_elsewhere()).give_up(trial_id, attempt, end)

    async def release(self, trial_id: str, attempt: int) -> None:
        """See `Datastore.release`."""
        await (await self._orchestrator.attempts_elsewhere()).release(trial_id, attempt)


class Resuming:
    """Goes on with the trials of a datastore that nobody runs.

    Args:
        orchestrator: runs them.
        datastore: has them, in this process or elsewhere.

    Attributes:
        on_resumed: told of each trial that goes on, with its parameters, as soon as its actors can come.
    """

    def __init__(self, orchestrator: Orchestrator, datastore: Datastore | DatastoreElsewhere) -> None:
        self._orchestrator = orchestrator
        self._datastore = datastore
        self._config: OrchestratorConfig = orchestrator.config
        self._endpoint = ""
        self._begun = trio.Event()
        self._busy: set[str] = set()
        self._claimed: dict[str, tuple[StoredTrial, int]] = {}
        self._limit = trio.CapacityLimiter(_AT_ONCE)
        self.on_resumed: Callable[[str, TrialParams], None] = _nothing
        self._running = trio.CancelScope()
        self._is_over = trio.Event()

    def begin(self, endpoint: str = "") -> None:
        """Begin; the second time nothing happens.

        Args:
            endpoint: where the orchestrator is reached; trials that ran there are its own.
        """
        if not self._begun.is_set():
            self._endpoint = endpoint
            self._begun.set()

    async def stop(self) -> None:
        """Look no more; return when every trial that was taken over runs here, or is released again."""
        self._running.cancel()
        await self._is_over.wait()
        claimed, self._claimed = self._claimed, {}
        for trial_id, (_, attempt) in claimed.items():
            await self._release(trial_id, attempt)

    # Trials whose owner goes on with them

    async def claim(self, trial_id: str) -> TrialParams:
        """Take over a trial that was left, which its owner knows, to go on with it later: until then it waits.

        Args:
            trial_id: of the trial, which has the property `RESUME_OWNER`.

        Returns:
            Its parameters.

        Raises:
            FailedPreconditionError: it is not stored, it has ended, or another process has it.
            CogmentError: of the storage.
        """
        if not isinstance(self._datastore, Datastore):
            raise FailedPreconditionError(f"trial {trial_id!r}: its owner cannot have it: its datastore is elsewhere")
        trial, attempt = await self._datastore.store.trial(trial_id), None
        if trial is None:
            why = "it is not stored"
        elif not trial.attempt or not trial.logged:
            why = "nobody counts its attempts"
        elif trial.end is TrialEnd.ENDED:
            why = "it has ended"
        elif (attempt := await self._datastore.take_over(trial, self._endpoint)) is None:
            why = "another process has it"
        else:
            why = self._spent(trial)
            self._claimed[trial_id] = trial, attempt
            self._datastore.on_abandoned(self._on_abandoned)
        if trial is None or why:
            if attempt is not None:
                await self.give_up(trial_id, why)
            raise FailedPreconditionError(f"trial {trial_id!r}: {why}")
        return trial.params

    async def start(self, trial_id: str) -> TrialParams:
        """Go on with a trial that was claimed; return its parameters, which say with which tick.

        Raises:
            FailedPreconditionError: it cannot go on, and has been ended.
            CogmentError: of the storage.
        """
        trial, attempt = self._claimed[trial_id]
        try:
            params = await self._start(trial, attempt)
        except CogmentError as error:
            await self.give_up(trial_id, str(error))
            raise FailedPreconditionError(f"trial {trial_id!r} cannot go on: {error}") from error
        self._claimed.pop(trial_id, None)
        return params

    async def give_up(self, trial_id: str, why: str) -> None:
        """End a trial that was claimed and is not gone on with; one that was released meanwhile is left alone.

        Raises:
            CogmentError: of the storage.
        """
        if (claimed := self._claimed.pop(trial_id, None)) is not None:
            await self._end(trial_id, claimed[1], why)

    # All others

    async def run(self) -> None:
        """Look for trials that nobody runs, and go on with them, until stopped."""
        try:
            with self._running:
                await self._begun.wait()
                await self._look()
        finally:
            self._datastore.on_abandoned(None)
            self._is_over.set()

    async def _look(self) -> None:
        self._datastore.on_abandoned(self._on_abandoned)
        async with trio.open_nursery() as nursery:

            def found(trial: StoredTrial) -> None:
                if trial.trial_id not in self._busy:
                    nursery.start_soon(self._go_on_when_free, trial)

            said = ""
            while True:
                began = trio.current_time()
                try:
                    await self._datastore.tell_left(self._endpoint, found)
                except CogmentError as error:
                    # While a datastore is away it says the same again and again.
                    if trio.current_time() > began + _BACK_SECONDS:
                        said = ""
                    level, said = logging.DEBUG if str(error) == said else logging.WARNING, str(error)
                    _log.log(level, "trials without an orchestrator could not be looked for: %s", error)
                await trio.sleep(_RETRY_SECONDS)

    async def _on_abandoned(self, trial: StoredTrial) -> bool:
        """Go on with a trial that is about to be ended; False: it is ended."""
        if trial.trial_id in self._claimed:
            return True
        return self._begun.is_set() and await self._go_on(trial, Notice.ABANDONED)

    async def _go_on_when_free(self, trial: StoredTrial) -> None:
        """Go on with a trial; one that is being started anew under its id here is refused that first."""
        trials = self._orchestrator.trials
        while (here := trials.get(trial.trial_id)) is not None and not here.over:
            if here.settled.is_set() and here.refusal is None:
                break  # it runs
            await trio.sleep(_RETRY_SECONDS)
        await self._go_on(trial, Notice.LEFT_OPEN)

    def _runs_here(self, trial_id: str) -> bool:
        trial = self._orchestrator.trials.get(trial_id)
        return (
            trial_id in self._busy
            or (trial is not None and not trial.over)
            or self._orchestrator.writes_samples_of(trial_id)  # it has ended, and its datastore does not know yet
        )

    async def _go_on(self, trial: StoredTrial, notice: Notice) -> bool:
        """Do what the table says about a trial; return whether somebody sees to it now."""
        trial_id = trial.trial_id
        most = self._config.resume_attempts
        step = STEPS[candidate(trial, runs_here=self._runs_here(trial_id), most_attempts=most), notice]
        if step is Step.LEAVE:
            return False
        self._busy.add(trial_id)
        attempt = None
        try:
            async with self._limit:
                attempt = await self._datastore.take_over(trial, self._endpoint)
                if attempt is None:
                    _log.info("trial %s: somebody else goes on with it, or it has ended", trial_id)
                    return True
                why = self._spent(trial)
                try:
                    if step is Step.TAKE_OVER:
                        await self._start(trial, attempt)
                except CogmentError as error:
                    why = str(error)
                if why:
                    await self._end(trial_id, attempt, why)
                attempt = None
        except CogmentError as error:
            # It is open still: the lease of its data log, or another process, comes back to it.
            _log.warning("trial %s: could not be taken over: %s", trial_id, error)
        except Exception:  # noqa: BLE001  the boundary of a trial
            _log.exception("trial %s: could not be taken over", trial_id)
        finally:
            self._busy.discard(trial_id)
            if attempt is not None:
                await self._release(trial_id, attempt)
        return True

    def _spent(self, trial: StoredTrial) -> str:
        """Return why a trial may have no more attempts; empty if it may."""
        most = self._config.resume_attempts
        spent = broken_off(trial.attempt, trial.params.properties) >= most
        return f"it has had {most} attempts that broke off, one after the other (resume_attempts)" if spent else ""

    async def _end(self, trial_id: str, attempt: int, why: str) -> None:
        _log.warning("trial %s: attempt %d: it cannot go on: %s", trial_id, attempt, why)
        end = TrialOutcome(trial_id, EndCause.NOT_STARTED, reason=f"it could not go on: {why}")
        await self._datastore.give_up(trial_id, attempt, end.message())

    async def _release(self, trial_id: str, attempt: int) -> None:
        """Let others have what was taken over and does not run here."""
        with trio.move_on_after(_RELEASE_SECONDS, shield=True):
            try:
                await self._datastore.release(trial_id, attempt)
            except CogmentError as error:
                _log.warning("trial %s: could not be released: %s", trial_id, error)

    async def _start(self, trial: StoredTrial, attempt: int) -> TrialParams:
        """Start a trial that was taken over; return its parameters.

        Raises:
            CogmentError: that is not possible.
        """
        deadline = trio.current_time() + self._config.resume_patience_seconds
        while True:
            try:
                return await self._start_once(trial, attempt)
            except CogmentError as error:
                # Participants that are discovered may be on their way, too, and so may a datastore elsewhere.
                if status_of(error)[0] not in _MAY_PASS or trio.current_time() + _RETRY_SECONDS > deadline:
                    raise
                _log.info("trial %s: attempt %d: not yet: %s", trial.trial_id, attempt, error)
            await trio.sleep(_RETRY_SECONDS)

    async def _start_once(self, trial: StoredTrial, attempt: int) -> TrialParams:
        trial_id, orchestrator, owner = trial.trial_id, self._orchestrator, trial.owner
        params, past = TrialParams(), None
        params.CopyFrom(trial.params)

        if trial.samples_count and (why := why_not(params)):
            raise DataLossError(why)

        def may_read(whose: str) -> bool:
            # What a branch has before its first tick is read again, and as at its start it has to be of its owner.
            return not owner or whose == owner

        try:
            _, past = await orchestrator.read_past(trial_id, account=owner, may_read=may_read, attempt=attempt)
        except NotFoundError:
            if trial.samples_count:
                raise
            if (branch := branch_of(params.properties)) is not None:
                _, past = await orchestrator.read_past(*branch, account=owner, may_read=may_read)
        tick_id = 0 if past is None else past.tick_id
        params.properties.update({RESUME_ATTEMPT: str(attempt), RESUME_TICK: str(tick_id)})
        before = orchestrator.trials.get(trial_id)
        if before is not None and before.over:
            orchestrator.trials.remove(before)  # an attempt that was replaced, or handed over
        started = await orchestrator.start_trial(
            trial_id=trial_id,
            user_id=trial.user_id,
            params=params,
            account=owner,
            quotas=Quotas.parse(params.properties.get(RESUME_QUOTAS, "")),
            run_id=params.properties.get(RESUME_RUN, ""),
            reach=params.properties.get(RESUME_REACH),
            taken_up=None if past is None else past.message(),
            attempt=attempt,
        )
        if not started:
            raise FailedPreconditionError(f"trial {trial_id!r}: it runs here already")
        self.on_resumed(trial_id, params)
        _log.warning(
            "trial %s: attempt %d goes on with tick %d, the last one that was stored", trial_id, attempt, tick_id
        )
        return params
