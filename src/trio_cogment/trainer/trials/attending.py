"""Trials that the workers of runs start themselves: their telemetry, and their end with the run."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import trio
from typing_extensions import override

from trio_cogment.access import unverified
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.base.backoff import exponential_delay
from trio_cogment.base.errors import CogmentError, InvalidArgumentError
from trio_cogment.sdk import Controller
from trio_cogment.sdk.access_token import ACCESS_TOKEN_VARIABLE
from trio_cogment.trainer._telemetry import Telemetry
from trio_cogment.trainer.dispatch.dispatcher import Starter
from trio_cogment.trainer.dispatching import RunControl, RunOrder, RunSink
from trio_cogment.trainer.runs import Cause, Run
from trio_cogment.trainer.trials.following import TrialFollower
from trio_cogment.trainer.trials.leftovers import GRACE_SECONDS, TELL_SECONDS, end_left_behind
from trio_cogment.trainer.trials.naming import Place, is_of, names_run, place_of
from trio_cogment.trainer.trials.where import Where

_log = logging.getLogger(__name__)

_KIND = "trials"
#: How often an external run with trials is taken note of as alive.
_ALIVE_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
#: How long the samples of trials that have ended may take to be published, before the run ends without them.
_PUBLISH_SECONDS = 30.0


class AttendedWorkers(Starter):
    """Workers of runs, and the trials that they start; a `Starter` of a dispatcher.

    A trial is of a run if its id begins with that of the run and a hyphen, or if its property `run_id` says so; and if
    it was started by the run's owner or its worker: see `naming.is_of`.

    Args:
        workers: runs the workers.
        where: where the trials are.
    """

    def __init__(self, workers: Starter, where: Where) -> None:
        self._workers = workers
        self._where = where

    @asynccontextmanager
    @override
    async def opened(self) -> AsyncIterator[None]:
        async with self._workers.opened():
            yield

    @override
    async def recover(self, orders: Collection[RunOrder]) -> None:
        await self._workers.recover(orders)
        await end_left_behind({order.run_id: _owners(order) for order in orders}, self._where)

    @override
    async def forget(self, run_id: str) -> None:
        await self._workers.forget(run_id)

    @override
    async def run(self, order: RunOrder, gpus: Sequence[int], sink: RunSink) -> None:
        async with _attended(order, self._where, sink) as attendant:
            await self._workers.run(order, gpus, attendant)


class ExternalRuns(Starter):
    """External runs: nobody is started, and the trials that join them are followed; a `Starter` of a dispatcher.

    A run is alive while one of its trials goes on. After a restart of the trainer, trials that were there before are
    not followed again.

    Args:
        where: where the trials are.
    """

    def __init__(self, where: Where) -> None:
        self._where = where

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """There is nothing to get ready."""
        yield

    async def run(self, order: RunOrder, _gpus: Sequence[int], sink: RunSink) -> None:
        """See `Starter.run`; it goes on until it is cancelled."""
        async with _attended(order, self._where, sink) as attendant:
            while True:
                await trio.sleep(_ALIVE_SECONDS)
                if attendant.has_trials:
                    sink.heard(order.run_id)


def _owners(order: RunOrder) -> frozenset[str]:
    """Return the accounts whose trials may join a run: its owner's, and that of a token in its configuration."""
    given = order.config.environment.get(ACCESS_TOKEN_VARIABLE, "")
    try:
        return frozenset([order.owner, *([f"token:{unverified(given).grant.name}"] if given else [])])
    except InvalidArgumentError:
        return frozenset([order.owner])


@asynccontextmanager
async def _attended(order: RunOrder, where: Where, sink: RunSink) -> AsyncIterator[_Attendant]:
    """Follow the trials of a run within the block; at its end they end."""
    attendant = _Attendant(order.run_id, _owners(order), where, sink)
    attendant.skip_known = order.again and order.config.external
    async with trio.open_nursery() as nursery:
        attendant.followers = nursery
        nursery.start_soon(attendant.watch)
        try:
            yield attendant
        finally:
            with trio.CancelScope(shield=True):
                await attendant.end_trials()
            attendant.watching.cancel()
        nursery.cancel_scope.cancel()


class _Attendant:
    """Sees to the trials of one run; it stands between its worker and the trainer.

    Attributes:
        followers: where trials are followed; set before the first one.
        skip_known: trials that are there already are not followed.
        watching: the scope of `watch`, which goes on until the trials have ended, whatever is cancelled.
    """

    followers: trio.Nursery

    def __init__(self, run_id: str, owners: Collection[str], where: Where, sink: RunSink) -> None:
        self._run_id = run_id
        self._owners = owners
        self._sink = sink
        self._controller = Controller(where.opener, spec=where.spec, user_id=run_id)
        self._follower = None if where.datastore is None else TrialFollower(run_id, sink, where.datastore)
        self._seen: set[str] = set()
        self._running: set[str] = set()
        self._following = 0
        self._changed = trio.lowlevel.ParkingLot()
        self.skip_known = False
        self.watching = trio.CancelScope(shield=True)

    @property
    def has_trials(self) -> bool:
        """Whether trials of the run go on."""
        return bool(self._running)

    async def watch(self) -> None:
        """Find the trials of the run, until `watching` is cancelled."""
        with self.watching:
            await self._watch()

    async def _watch(self) -> None:
        failures = 0
        while True:
            try:
                if self.skip_known:
                    known = await self._controller.trial_infos()
                    self._seen.update(info.trial_id for info in known if self._is_ours(info))
                    self.skip_known = False
                async with self._controller.watch_trials(full_info=True) as watch:
                    failures = 0
                    async for entry in watch:
                        self._note(entry.info)
            except CogmentError as error:
                _log.info("run %s: its trials cannot be watched: %s", self._run_id, error)
            await trio.sleep(exponential_delay(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, failures))
            failures += 1

    def _is_ours(self, info: TrialInfo) -> bool:
        return is_of(info, self._run_id, self._owners)

    def _note(self, info: TrialInfo) -> None:
        trial_id, state = info.trial_id, info.state
        if not self._is_ours(info):
            if state == TrialState.PENDING and names_run(info, self._run_id):
                _log.info("run %s: trial %s is none of its trials: somebody else started it", self._run_id, trial_id)
            return
        if state >= TrialState.ENDED:
            self._running.discard(trial_id)
            self._changed.unpark_all()
        else:
            self._running.add(trial_id)
        if self._follower is not None and trial_id not in self._seen and state >= TrialState.PENDING:
            place = place_of(self._run_id, trial_id) or Place(len(self._seen))
            self._seen.add(trial_id)
            self._following += 1
            self.followers.start_soon(self._follow, self._follower, trial_id, place)

    async def _follow(self, follower: TrialFollower, trial_id: str, place: Place) -> None:
        try:
            await self._sink.attach(self._run_id, "", _KIND)
            await follower.follow(trial_id, place)
        except CogmentError as error:
            _log.info("run %s: trial %s is not followed: %s", self._run_id, trial_id, error)
        finally:
            self._following -= 1
            self._changed.unpark_all()

    async def end_trials(self) -> None:
        """End the trials that run: softly, and after a while hard."""
        for hard, seconds in ((False, GRACE_SECONDS), (True, 0.0)):
            if not self._running:
                return
            try:
                with trio.move_on_after(TELL_SECONDS):
                    await self._controller.terminate_trial(sorted(self._running), hard=hard)
            except CogmentError as error:
                _log.warning("run %s: its trials cannot be ended: %s", self._run_id, error)
                return
            with trio.move_on_after(seconds):
                while self._running:
                    await self._changed.park()

    # What a worker tells

    async def ended(self, run_id: str, cause: Cause, reason: str = "", detail: str = "") -> Run:
        """See `RunSink.ended`: what its trials have done comes before the end of a run."""
        await self.end_trials()
        with trio.move_on_after(_PUBLISH_SECONDS):
            while self._following:
                await self._changed.park()
        return await self._sink.ended(run_id, cause, reason, detail)

    async def starting(self, run_id: str, gpu_slots: Sequence[int] = (), *, registers: bool = True) -> None:
        """See `RunSink.starting`."""
        await self._sink.starting(run_id, gpu_slots, registers=registers)

    async def attach(self, run_id: str, worker_id: str, kind: str) -> None:
        """See `RunSink.attach`."""
        await self._sink.attach(run_id, worker_id, kind)

    def heard(self, run_id: str) -> None:
        """See `RunSink.heard`."""
        self._sink.heard(run_id)

    async def link(self, run_id: str, checkpoint: str) -> None:
        """See `RunSink.link`."""
        await self._sink.link(run_id, checkpoint)

    async def publish(self, run_id: str, message: Telemetry) -> None:
        """See `RunSink.publish`."""
        await self._sink.publish(run_id, message)

    def control(self, run_id: str) -> RunControl:
        """See `RunSink.control`."""
        return self._sink.control(run_id)

    async def control_changed(self, run_id: str, known: RunControl) -> RunControl:
        """See `RunSink.control_changed`."""
        return await self._sink.control_changed(run_id, known)
